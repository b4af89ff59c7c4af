"""Numbers that show how they came about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a plan."""

    name: str
    value: float | None
    """None: not known, and `how` says why."""
    unit: str
    how: str
    """The arithmetic, with its numbers in it, or where the number is from."""


@dataclass(frozen=True, slots=True)
class Section:
    """Figures under one title, in the order in which they follow from one another."""

    title: str
    figures: tuple[Figure, ...]

    def value(self, name: str) -> float:
        """Raises `KeyError` where there is no such figure or it is not known."""
        found = {figure.name: figure.value for figure in self.figures}[name]
        if found is None:
            raise KeyError(name)
        return found


class PlanError(ValueError):
    """A plan cannot be made; the message is one line with the remedy."""


def amount(value: float, unit: str) -> str:
    """A value with its unit, as people read it."""
    if unit in _SCALED:
        return scaled(value, _SCALED[unit])
    return f"{brief(value)} {unit}".rstrip()


_SCALED = {"bytes": "B", "FLOP": "FLOP", "FLOP/s": "FLOP/s", "bytes/s": "B/s"}


def brief(value: float) -> str:
    """Whole from 100 on and where it is whole; else three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def scaled(value: float, unit: str) -> str:
    """12.3 GB for 12.3e9 and "B": powers of 1,000."""
    for prefix, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"
