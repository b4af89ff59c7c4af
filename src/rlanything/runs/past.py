"""The metrics of a run's latest iterations, as warnings read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from rlanything.runs.metrics.measuring import read
from rlanything.runs.results import Numbers

Past: TypeAlias = Sequence[Numbers]
"""The iterations so far, the latest last."""

PATIENCE = 3
"""Number of iterations that a state must last: a single one has a handful of tasks."""
TREND_ITERATIONS = 20
"""Number of latest iterations in which trends are looked for."""
LEAST_ITERATIONS = 10
"""In fewer no order of the values is rare enough."""


def lately(past: Past, name: str, count: int) -> list[float] | None:
    """Returns the values of the latest iterations; None unless all are known."""
    values = [value for row in past[-count:] if (value := read(row, name)) is not None]
    return values if len(values) == count else None


def trend_values(past: Past, *names: str) -> list[tuple[float, ...]]:
    """Returns what `known_values` returns; nothing where they are too few for a trend."""
    known = known_values(past, *names)
    return known if known and len(known[0]) >= LEAST_ITERATIONS else []


def known_values(past: Past, *names: str) -> list[tuple[float, ...]]:
    """Returns [names][iterations], of the latest iterations those in which all are known."""
    rows = [tuple(read(row, name) for name in names) for row in past[-TREND_ITERATIONS:]]
    known = [tuple(value for value in row if value is not None) for row in rows]
    return list(zip(*(row for row in known if len(row) == len(names)), strict=True))
