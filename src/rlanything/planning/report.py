"""The printed plan: every line a name, a value, and its arithmetic."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlanything.planning.plan import Plan
from rlanything.planning.quantities import PlanSection, amount, brief


def render(plan: Plan) -> RenderableType:
    """Returns the plan section by section, the verdict and its caveat last."""
    fits = "every role fits" if plan.fits else "NOT every role fits"
    phases = ", ".join(f"{name} {brief(value)} s" for name, value in plan.seconds.items())
    return Group(
        *(part for section in plan.sections for part in (Text(), _table(section))),
        Text(),
        Text(f"{plan.recipe} on {plan.count} x {plan.device}: {fits}. An iteration: {phases}"),
        Text(plan.caveat),
    )


def _table(section: PlanSection) -> Table:
    table = Table(title=section.title, title_justify="left", box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(ratio=1)
    for quantity in section.quantities:
        nothing = "unknown" if quantity.unit else ""
        value = nothing if quantity.value is None else amount(quantity.value, quantity.unit)
        table.add_row(Text(quantity.name), Text(value), Text(quantity.how))
    return table
