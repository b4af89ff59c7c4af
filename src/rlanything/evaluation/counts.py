"""Counts of what a judge got right, item by item (an episode, a task), and their change between two
evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from rlanything.evaluation.intervals import Interval, percentile_interval, wilson

Counts: TypeAlias = Mapping[str, tuple[int, int]]
"""Hits of one item, and of how many, by measure."""


def pooled(items: Mapping[str, Counts]) -> dict[str, float]:
    """Returns by measure the hits over all items as a share of all there could have been."""
    hits, totals = dict[str, int](), dict[str, int]()
    for counts in items.values():
        for measure, (hit, total) in counts.items():
            hits[measure] = hits.get(measure, 0) + hit
            totals[measure] = totals.get(measure, 0) + total
    return {measure: hits[measure] / total for measure, total in totals.items() if total}


def level(items: Mapping[str, Counts], measures: Sequence[str]) -> Interval | None:
    """Returns the pooled shares, meaned over the measures and bootstrapped over the items; None
    where a measure has nothing to count. Where nothing or everything was hit, which leaves a
    bootstrap no width, Wilson's interval with every item as one trial."""
    drawn = _resampled([items], measures)
    if drawn is None:
        return None
    estimate = float(drawn[0][0])
    if estimate in (0, 1):
        counted = sum(_counted(counts, measures) for counts in items.values())
        return wilson(counted if estimate else 0, counted)
    return percentile_interval(estimate, drawn[1][0])


def gain(
    before: Mapping[str, Counts], after: Mapping[str, Counts], measures: Sequence[str]
) -> Interval | None:
    """Returns the pooled shares after minus before, meaned over the measures and bootstrapped over
    the items that both have; None where a measure has nothing to count."""
    drawn = _resampled([before, after], measures)
    if drawn is None:
        return None
    (one, two), (before_drawn, after_drawn) = drawn
    return percentile_interval(float(two - one), after_drawn - before_drawn)


def _resampled(
    evaluations: Sequence[Mapping[str, Counts]], measures: Sequence[str]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the pooled share of each evaluation [evaluations], and as many of resampled items as
    the bootstrap draws [evaluations, 2000]; the same items are drawn for all."""
    nothing = (0, 0)
    shared = [
        name
        for name in sorted(set[str].intersection(*(set(items) for items in evaluations)))
        if _counted(evaluations[0][name], measures)
    ]
    if not shared:
        return None
    table = np.array(
        [
            [[evaluated[name].get(measure, nothing) for measure in measures] for name in shared]
            for evaluated in evaluations
        ]
    )
    # Items are resampled, not steps or tests: those of one item stand or fall together.
    drawn = np.random.default_rng(0).integers(len(shared), size=(2000, len(shared)))
    sums = table[:, drawn].sum(axis=2)
    if (sums[..., 1] == 0).any():
        return None
    whole = table.sum(axis=1)
    estimate = (whole[..., 0] / whole[..., 1]).mean(axis=-1)
    return estimate, (sums[..., 0] / sums[..., 1]).mean(axis=-1)


def _counted(counts: Counts, measures: Sequence[str]) -> bool:
    """Returns whether there was anything to count in an item."""
    return any(counts[measure][1] for measure in measures if measure in counts)
