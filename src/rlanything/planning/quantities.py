"""Numbers with the arithmetic behind them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quantity:
    """One line of a plan."""

    name: str
    value: float | None
    """None: not known; `how` gives the reason."""
    unit: str
    how: str
    """The arithmetic, with its numbers in it, or where the number is from."""


@dataclass(frozen=True, slots=True)
class PlanSection:
    """Quantities under one title, in the order in which they follow from one another."""

    title: str
    quantities: tuple[Quantity, ...]

    def value(self, name: str) -> float:
        """Returns a quantity by name. Raises `KeyError` where there is none or it is not known."""
        value = {quantity.name: quantity.value for quantity in self.quantities}[name]
        if value is None:
            raise KeyError(name)
        return value


class PlanError(ValueError):
    """A plan cannot be made; the message is one line with the remedy."""


def amount(value: float, unit: str) -> str:
    """Returns a value with its unit, as people read it: 12.3 GB for 12.3e9 and "bytes"."""
    if unit not in _SCALED:
        return f"{brief(value)} {unit}".rstrip()
    for prefix, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.4g} {prefix}{_SCALED[unit]}"
    return f"{value:.4g} {_SCALED[unit]}"


_SCALED = {"bytes": "B", "FLOP": "FLOP", "FLOP/s": "FLOP/s"}
"""Units that are written with a prefix for powers of 1,000."""


def brief(value: float) -> str:
    """Returns whole numbers from 100 on, and three digits below."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
