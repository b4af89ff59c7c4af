"""A plan to read: every line a name, a value, and how it came about."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlanything.planning.figures import Section, amount, brief
from rlanything.planning.plan import Plan


def render(plan: Plan) -> RenderableType:
    """Section by section, the verdict last."""
    fits = "every role fits" if plan.fits else "NOT every role fits"
    phases = ", ".join(f"{name} {brief(value)} s" for name, value in plan.seconds.items())
    return Group(
        *(each for section in plan.sections for each in (Text(), _table(section))),
        Text(),
        Text(f"{plan.recipe} on {plan.count} x {plan.device}: {fits}. An iteration: {phases}"),
    )


def _table(section: Section) -> Table:
    table = Table(title=section.title, title_justify="left", box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(ratio=1)
    for figure in section.figures:
        nothing = "unknown" if figure.unit else ""
        value = nothing if figure.value is None else amount(figure.value, figure.unit)
        table.add_row(Text(figure.name), Text(value), Text(figure.how))
    return table
