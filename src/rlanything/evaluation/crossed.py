"""Intervals where two things vary independently: seeds of training, and items measured.

Every seed of an arm is measured on the same items: held-out tasks, or episodes and tasks of the
judge's evaluation. So the variance of a value has two parts: that of the items, each taken with its
mean over the seeds, and that of the seeds, each taken with its own value. Their sum is rather too
large, since chance within an item and a seed is in both (Owen 2007 finds the same of the bootstrap
that draws both anew). What is compared is paired: a difference is taken first, seed by seed and
item by item.

With few seeds their part is uncertain and no interval makes up for it: where seeds differ by more
than items do, those of two or three seeds are on the narrow side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rlanything.evaluation.intervals import (
    Floats,
    Interval,
    difference_over_tasks,
    interval_over_tasks,
)

Hits: TypeAlias = Sequence[tuple[int, int]]
"""Hits of one item, and of how many, by kind."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Hits and totals [seeds, items, kinds] of one measure. Its value is the mean over seeds of the
    mean over kinds of hits as a share of totals, both summed over items."""

    hits: Floats
    totals: Floats


def counted(by_seed: Sequence[Mapping[str, Hits]], items: Sequence[str], kinds: int) -> Counted:
    """Returns the table of each seed's items; one that a seed lacks counts as nothing there."""
    nothing = [(0, 0)] * kinds
    table = np.array(
        [[seed.get(item, nothing) for item in items] for seed in by_seed], dtype=np.float64
    ).reshape(len(by_seed), len(items), kinds, 2)
    return Counted(table[..., 0], table[..., 1])


def crossed_mean(measured: Counted) -> Interval | None:
    """Returns the measure's value with its interval; None where nothing was counted."""
    seeds = _complete(measured)
    if not seeds.any():
        return None
    values, influence, weights = _shares(measured, seeds)
    return interval_over_tasks(
        float(values.mean()), influence.mean(axis=0), weights.mean(axis=0), _between(values)
    )


def crossed_difference(before: Counted, after: Counted) -> Interval | None:
    """Returns after minus before, for the same seeds and items in the same order; None where
    nothing was counted. Raises ValueError where the shapes differ."""
    if before.hits.shape != after.hits.shape:
        raise ValueError(f"cannot pair {before.hits.shape} with {after.hits.shape}")
    seeds = _complete(before) & _complete(after)
    if not seeds.any():
        return None
    one, two = _shares(before, seeds), _shares(after, seeds)
    values, influence = two[0] - one[0], two[1] - one[1]
    weights = (one[2] + two[2]) / 2
    return difference_over_tasks(
        float(values.mean()), influence.mean(axis=0), weights.mean(axis=0), _between(values)
    )


def _complete(measured: Counted) -> npt.NDArray[np.bool_]:
    """Returns which seeds [seeds] have something to count of every kind."""
    return (measured.totals.sum(axis=1) > 0).all(axis=1)


def _shares(measured: Counted, seeds: npt.NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Returns the values of these seeds [seeds], and by how much each item moves them and how much
    it counts, both [seeds, items]."""
    hits, totals = measured.hits[seeds], measured.totals[seeds]
    whole = totals.sum(axis=1, keepdims=True)
    shares = hits.sum(axis=1, keepdims=True) / whole
    influence = (hits - shares * totals) / whole
    return shares.mean(axis=(1, 2)), influence.mean(axis=2), (totals / whole).mean(axis=2)


def _between(values: Floats) -> float:
    """Returns the variance of the mean of values [seeds]; 0 for one seed, which tells nothing."""
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0
