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
    """A value as people read it: bytes in powers of 1,000, small numbers with their digits."""
    if unit == "bytes":
        return scaled(value, "B")
    if unit == "FLOP":
        return scaled(value, "FLOP")
    if unit == "FLOP/s":
        return scaled(value, "FLOP/s")
    if unit == "bytes/s":
        return scaled(value, "B/s")
    digits = 0 if value == int(value) or abs(value) >= 100 else 3 if abs(value) < 1 else 1
    return f"{value:,.{digits}f} {unit}".rstrip()


def scaled(value: float, unit: str) -> str:
    """12.3 GB for 12.3e9 and "B"."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:,.4g} {prefix}{unit}"
    return f"{value:,.4g} {unit}"
