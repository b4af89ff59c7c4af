"""The cosine between two mean gradients over tasks, without the bias of noise.

The plain cosine of two noisy means is biased: towards 0 by the noise of each, and towards 1 by
noise that both share because they come from the same tasks. Products of gradients of *different*
tasks have neither bias. Their mean over all pairs of tasks is, up to a factor that cancels, the
mean product of two halves of the tasks, over all ways to halve them. With x.y, x.x and y.y
estimated this way,

    cosine = x.y / sqrt(x.x y.y)        reliability of x = x.x / |mean of x|^2

The cosine is that of the means over all tasks that could have been drawn. The reliability is the
share of the squared length that other tasks would give again: the split-half reliability, brought
to the whole sample by the formula of Spearman and Brown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
import numpy.typing as npt

from rlanything.evaluation.intervals import Interval, percentile_interval

Floats = npt.NDArray[np.floating]

LEAST = 0.2
"""Least reliability of both gradients; below it, no cosine is given."""
DRAWS = 1000
"""Number of bootstrap samples of the tasks."""


@dataclass(frozen=True, slots=True)
class TaskGradients:
    """Gradients of tasks; a task that did not train has gradient 0."""

    slots: npt.NDArray[np.intp]
    """[tasks], the number of each task's slot in the pool; a slot has at most one task."""
    rows: Floats
    """[tasks, weights]"""


@dataclass(frozen=True, slots=True)
class Products:
    """The inner products x.y, x.x and y.y of two mean gradients. Products of several iterations or
    runs add up, so that their sum gives the cosine over all of them."""

    plain: Floats
    """[3], of the means over the drawn tasks."""
    unbiased: Floats
    """[3], estimates for the means over all tasks, from pairs of different tasks."""
    resampled: Floats
    """[draws, 3], the same estimates on bootstrap samples."""

    def __add__(self, other: Products) -> Products:
        return Products(
            self.plain + other.plain,
            self.unbiased + other.unbiased,
            self.resampled + other.resampled,
        )


@dataclass(frozen=True, slots=True)
class Agreement:
    """The directions of two gradients, compared."""

    plain: float
    """The plain cosine, biased by noise."""
    reliability: tuple[float, float]
    """The reliability of each gradient, at most 1; 0 or less: nothing but noise."""
    cosine: Interval | None
    """The unbiased cosine; None if a reliability is below `LEAST`."""
    ratio: float | None
    """Length of the first over that of the second, without noise; None like `cosine`."""


def bootstrap(slots: int, seed: int) -> npt.NDArray[np.int64]:
    """Returns how often each slot of a pool is drawn, [draws, slots]."""
    return np.random.default_rng(seed).multinomial(slots, np.full(slots, 1 / slots), size=DRAWS)


def products(x: TaskGradients, y: TaskGradients, drawn: npt.NDArray[np.int64]) -> Products | None:
    """Returns the products of two mean gradients; `drawn` as `bootstrap` returns it. None if either
    side has fewer than two tasks that train."""
    if min(np.count_nonzero(one.rows.any(axis=1)) for one in (x, y)) < 2:
        return None
    pairs = [(x, y), (x, x), (y, y)]
    grams = [(one, other, _gram(one, other)) for one, other in pairs]
    return Products(
        np.array([gram.mean() for _, _, gram in grams]),
        np.array([_unbiased(*each, np.ones_like(drawn[:1]))[0] for each in grams]),
        np.stack([_unbiased(*each, drawn) for each in grams], axis=1),
    )


def total(several: Sequence[Products | None]) -> Products | None:
    """Returns the sum of those that there are; None without any."""
    given = [one for one in several if one is not None]
    return reduce(add, given) if given else None


def agreement(of: Products) -> Agreement:
    """Returns the cosine of two mean gradients, if both are reliable enough. Its interval is the
    middle 95% of its bootstrap samples, all within [-1, 1]."""
    reliability = (of.unbiased[1] / of.plain[1], of.unbiased[2] / of.plain[2])
    plain = float(of.plain[0] / np.sqrt(of.plain[1] * of.plain[2]))
    given = (float(reliability[0]), float(reliability[1]))
    if min(given) < LEAST:
        return Agreement(plain, given, None, None)
    interval = percentile_interval(float(_cosine(of.unbiased)), _cosine(of.resampled))
    ratio = float(np.sqrt(of.unbiased[1] / of.unbiased[2]))
    return Agreement(plain, given, interval, ratio)


def _cosine(of: Floats) -> Floats:
    """Returns cosines [...] from products [..., 3]. A squared length that noise made 0 or less says
    nothing about the length: the cosine is then -1 or 1, by its sign."""
    squared = np.maximum(of[..., 1], 0) * np.maximum(of[..., 2], 0)
    known = squared > 0
    ratio = of[..., 0] / np.sqrt(np.where(known, squared, 1))
    return np.where(known, np.clip(ratio, -1, 1), np.sign(of[..., 0]))


def _gram(x: TaskGradients, y: TaskGradients) -> Floats:
    return (x.rows @ y.rows.T).astype(np.float64)


def _unbiased(
    x: TaskGradients, y: TaskGradients, gram: Floats, drawn: npt.NDArray[np.int64]
) -> Floats:
    """Returns the mean product over pairs of different tasks [draws], each task as often as it is
    drawn. A pair of one task with itself never counts, not even if the task is drawn twice."""
    of_x, of_y = drawn[:, x.slots], drawn[:, y.slots]
    _, at_x, at_y = np.intersect1d(x.slots, y.slots, return_indices=True)
    itself = of_x[:, at_x] * of_y[:, at_y]
    pairs = of_x.sum(1) * of_y.sum(1) - itself.sum(1)
    summed = ((of_x @ gram) * of_y).sum(1) - itself @ gram[at_x, at_y]
    return np.where(pairs > 0, summed / np.maximum(pairs, 1), 0.0)
