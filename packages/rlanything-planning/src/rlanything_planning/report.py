"""A plan as numbers with their calculation, and its printed form."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Quantity:
    """One line of a plan. `how`: the calculation, or the source of the number; if the value is
    unknown, the reason."""

    name: str
    value: float | None
    unit: str
    how: str


@dataclass(frozen=True, slots=True)
class PlanSection:
    """Quantities under one title, each after those it is derived from."""

    title: str
    quantities: tuple[Quantity, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Requirements of a run of a recipe on `count` seats, each with a device: whether all roles
    `fit`, and the seconds of one iteration by phase, without phases at an endpoint."""

    recipe: str
    device: str
    count: int
    fits: bool
    free: float
    """Bytes left on the fullest device; negative if not all roles fit."""
    sections: tuple[PlanSection, ...]
    seconds: dict[str, float]
    pauses: dict[str, float]
    """Seconds of one evaluation, and of waiting for one checkpoint to be written."""
    caveat: str
    """Reliability of the seconds."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class PlanError(ValueError):
    """A plan cannot be made; the message is one line with the remedy."""


def amount(value: float, unit: str) -> str:
    """Returns a value with its unit in readable form: 12.3 GB for 12.3e9 and "bytes"."""
    if unit not in ("bytes", "bytes/s", "FLOP", "FLOP/s"):
        return f"{brief(value)} {unit}".rstrip()
    power = min(6, (len(f"{abs(value):.0f}") - 1) // 3)
    return f"{value / 1000**power:.4g} {' kMGTPE'[power].strip()}{unit.replace('bytes', 'B')}"


def brief(value: float) -> str:
    """Returns integers from 100 on, and three digits below."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def render(plan: Plan) -> RenderableType:
    """Returns the plan section by section, the verdict and its caveat last."""
    parts: list[RenderableType] = []
    for section in plan.sections:
        table = Table(title=section.title, title_justify="left", box=None, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(ratio=1)
        for line in section.quantities:
            unknown = "unknown" if line.unit else ""
            value = unknown if line.value is None else amount(line.value, line.unit)
            table.add_row(line.name, value, line.how)
        parts += ["", table]
    left = amount(abs(plan.free), "bytes")
    fits = f"every role fits, {left} of the fullest is free"
    if not plan.fits:
        fits = f"NOT every role fits, {left} too much"
    verdict = f"{plan.recipe} on {plan.count} x {plan.device}: {fits}. "
    verdict += f"An iteration: {_listed(plan.seconds)}. Between them: {_listed(plan.pauses)}"
    return Group(*parts, "", verdict, plan.caveat)


def _listed(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {brief(value)} s" for name, value in seconds.items())
