"""What a judge got right, counted item by item (an episode, a task), and what changed between two
sittings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from rlanything.evaluation.intervals import Interval, percentile_interval, wilson

Counts: TypeAlias = Mapping[str, tuple[int, int]]
"""Of one item, by measure: hits, and of how many."""


def pooled(items: Mapping[str, Counts]) -> dict[str, float]:
    """By measure, hits over all items as a share of all there could have been."""
    hits, totals = dict[str, int](), dict[str, int]()
    for counts in items.values():
        for measure, (hit, total) in counts.items():
            hits[measure] = hits.get(measure, 0) + hit
            totals[measure] = totals.get(measure, 0) + total
    return {measure: hits[measure] / total for measure, total in totals.items() if total}


def share_of(items: Mapping[str, Counts], measure: str) -> Interval | None:
    """The pooled share of one measure, bootstrapped over the items; None where there is nothing to
    count. Where it is 0 or 1 in all of them, which leaves a bootstrap no width, Wilson's interval
    with every item as one trial."""
    table = np.array([counts[measure] for counts in items.values() if measure in counts])
    if not len(table) or not table[:, 1].sum():
        return None
    table = table[table[:, 1] > 0]
    if len(set(table[:, 0] / table[:, 1])) == 1 and table[0, 0] in (0, table[0, 1]):
        return wilson(len(table) if table[0, 0] else 0, len(table))
    drawn = np.random.default_rng(0).integers(len(table), size=(2000, len(table)))
    hits, totals = table[drawn].sum(axis=1).T
    whole = table.sum(axis=0)
    return percentile_interval(float(whole[0] / whole[1]), hits / totals)


def gain(
    before: Mapping[str, Counts], after: Mapping[str, Counts], measures: Sequence[str]
) -> Interval | None:
    """The pooled shares after minus before, meaned over the measures and bootstrapped over the
    items that both have; None where a measure has nothing to count."""
    nothing = (0, 0)
    shared = [
        name
        for name in sorted(before.keys() & after.keys())
        if any(measure in before[name] for measure in measures)
    ]
    if not shared:
        return None
    table = np.array(
        [
            [[sitting[name].get(measure, nothing) for measure in measures] for name in shared]
            for sitting in (before, after)
        ]
    )
    # Items are resampled, not steps or tests: those of one item stand or fall together.
    drawn = np.random.default_rng(0).integers(len(shared), size=(2000, len(shared)))
    sums = table[:, drawn].sum(axis=2)
    if (sums[..., 1] == 0).any():
        return None
    resampled = (sums[..., 0] / sums[..., 1]).mean(axis=-1)
    whole = table.sum(axis=1)
    estimate = (whole[..., 0] / whole[..., 1]).mean(axis=-1)
    return percentile_interval(float(estimate[1] - estimate[0]), resampled[1] - resampled[0])
