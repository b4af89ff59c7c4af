"""Intervals for two independent sources of variance: training seeds, and measured items.

Every seed of an arm is measured on the same items: held-out tasks, or tasks of the judge's
evaluation. So the variance of a value has two parts: the items, each with its mean over the seeds,
and the seeds, each with its own value. Chance within an item and a seed is in both, and is
subtracted once, as in an analysis of variance with two crossed random factors. Comparisons are
paired: differences are taken first, seed by seed and item by item.

Few seeds say little about how seeds differ. So the quantile is Student's, with Satterthwaite's
(1946) degrees of freedom for the seeds' share of the variance. Two or three seeds that differ more
than the items therefore have wide intervals.
"""

from __future__ import annotations

import math
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
"""Hits of one item and their totals, by kind."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Hits and totals [seeds, items, kinds] of one measure. Its value is the mean over seeds of the
    mean over kinds of hits as a share of totals, both summed over items."""

    hits: Floats
    totals: Floats


def counted(by_seed: Sequence[Mapping[str, Hits]], items: Sequence[str], kinds: int) -> Counted:
    """Returns the table of each seed's items; an item that a seed lacks counts as zero there."""
    nothing = [(0, 0)] * kinds
    table = np.array(
        [[seed.get(item, nothing) for item in items] for seed in by_seed], dtype=np.float64
    ).reshape(len(by_seed), len(items), kinds, 2)
    return Counted(table[..., 0], table[..., 1])


def crossed_mean(measured: Counted) -> Interval | None:
    """Returns the measure's value with its interval; None if nothing was counted."""
    seeds = _complete(measured)
    if not seeds.any():
        return None
    values, influence, weights = _shares(measured, seeds)
    return interval_over_tasks(
        float(values.mean()),
        influence.mean(axis=0),
        weights.mean(axis=0),
        *_of_seeds(values, influence),
    )


def crossed_difference(before: Counted, after: Counted) -> Interval | None:
    """Returns after minus before, for the same seeds and items in the same order; None if nothing
    was counted. Raises ValueError if the shapes differ."""
    if before.hits.shape != after.hits.shape:
        raise ValueError(f"cannot pair {before.hits.shape} with {after.hits.shape}")
    seeds = _complete(before) & _complete(after)
    if not seeds.any():
        return None
    one, two = _shares(before, seeds), _shares(after, seeds)
    values, influence = two[0] - one[0], two[1] - one[1]
    weights = (one[2] + two[2]) / 2
    return difference_over_tasks(
        float(values.mean()),
        influence.mean(axis=0),
        weights.mean(axis=0),
        *_of_seeds(values, influence),
    )


def _complete(measured: Counted) -> npt.NDArray[np.bool_]:
    """Returns which seeds [seeds] have counts of every kind."""
    return (measured.totals.sum(axis=1) > 0).all(axis=1)


def _shares(measured: Counted, seeds: npt.NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Returns the values of these seeds [seeds], and the influence and the weight of each item in
    them, both [seeds, items]."""
    hits, totals = measured.hits[seeds], measured.totals[seeds]
    whole = totals.sum(axis=1, keepdims=True)
    shares = hits.sum(axis=1, keepdims=True) / whole
    influence = (hits - shares * totals) / whole
    return shares.mean(axis=(1, 2)), influence.mean(axis=2), (totals / whole).mean(axis=2)


def _of_seeds(values: Floats, influence: Floats) -> tuple[float, float]:
    """Returns the variance of the mean of values [seeds] beyond the uncertainty from items, and the
    degrees of freedom of both together. One seed gives no variance and infinite degrees of freedom.
    `influence` [seeds, items]."""
    seeds = len(values)
    between = float(values.var(ddof=1)) / seeds if seeds > 1 else 0.0
    if not between:
        return 0.0, math.inf
    items = influence.mean(axis=0)
    chance = float(((influence - items) ** 2).sum()) / (seeds * (seeds - 1))
    beyond = max(between - chance, 0.0)
    whole = max(between, float(items @ items) + beyond)
    part = between / whole
    return beyond, (seeds - 1) / part / part
