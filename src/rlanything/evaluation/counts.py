"""Counts of a judge's hits per item (a task), and their change between two evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rlanything.evaluation.crossed import Counted, counted, crossed_difference, crossed_mean
from rlanything.evaluation.intervals import Interval

Counts: TypeAlias = Mapping[str, tuple[int, int]]
"""Hits and total of one item, by measure."""


def pooled(items: Mapping[str, Counts]) -> dict[str, float]:
    """Returns the hits of all items as a share of their total, by measure."""
    return {measure: hits / total for measure, (hits, total) in summed(items).items() if total}


def summed(items: Mapping[str, Counts]) -> dict[str, tuple[int, int]]:
    """Returns the hits and the total of all items, by measure."""
    sums: dict[str, tuple[int, int]] = {}
    for counts in items.values():
        for measure, (hits, total) in counts.items():
            before = sums.get(measure, (0, 0))
            sums[measure] = (before[0] + hits, before[1] + total)
    return sums


def level(items: Mapping[str, Counts], measures: Sequence[str]) -> Interval | None:
    """Returns the mean over measures of the pooled shares, with an interval over items, because
    hits of one item are correlated. None if a measure has nothing to count."""
    return crossed_mean(_table(items, sorted(items), measures))


def gain(
    before: Mapping[str, Counts], after: Mapping[str, Counts], measures: Sequence[str]
) -> Interval | None:
    """Returns the mean change of the pooled shares over the measures, with an interval over the
    items that both have; None if a measure has nothing to count."""
    shared = sorted(before.keys() & after.keys())
    return crossed_difference(_table(before, shared, measures), _table(after, shared, measures))


def _table(items: Mapping[str, Counts], names: Sequence[str], measures: Sequence[str]) -> Counted:
    nothing = (0, 0)
    hits = {name: [items[name].get(measure, nothing) for measure in measures] for name in names}
    return counted([hits], names, len(measures))
