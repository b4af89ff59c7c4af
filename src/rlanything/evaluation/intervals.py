"""95% confidence intervals of proportions, of means over tasks and of their paired differences.

Tasks are the sampling unit, because outcomes of one task's episodes are correlated. The variance of
the shares over tasks gives an effective number of independent trials; the interval is that of a
proportion with this many trials. To account for unseen tasks, one task that is always won and one
that is always lost are added, as Agresti and Coull (1998) and, for differences, Bonett and Price
(2012) add successes and failures. So no interval of finite data has width 0;
`tests/evaluation/test_coverage.py` simulates its coverage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

Z_95 = 1.959963984540054
"""The 97.5% quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the bounds of its 95% interval."""

    estimate: float
    low: float
    high: float


def wilson(successes: int, trials: int) -> Interval | None:
    """Returns Wilson's score interval for a proportion, with continuity correction (Newcombe 1998,
    method 4); None without trials. Without the correction coverage is too low for rare successes:
    83% for 1 success of 5.

    Raises ValueError unless 0 <= successes <= trials."""
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    return _score_interval(successes / trials, trials) if trials else None


def mean_over_tasks(shares: npt.ArrayLike) -> Interval | None:
    """Returns the mean of shares won [tasks], for tasks played once or several times each; Wilson's
    interval if all were played once. None without tasks."""
    values = np.asarray(shares, dtype=np.float64)
    if not values.size:
        return None
    mean, tasks = float(values.mean()), values.size
    return interval_over_tasks(mean, (values - mean) / tasks, np.full(tasks, 1 / tasks))


def paired_difference(before: npt.ArrayLike, after: npt.ArrayLike) -> Interval | None:
    """Returns the mean of `after` minus that of `before`, two arrays [tasks] of shares won, paired
    by task: 0 or 1 for a task played once. None without tasks.

    With fewer than 6 tasks the interval always contains 0, as for a sign test. Raises ValueError
    unless both are equally long and all values lie in [0, 1]."""
    one, two = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if one.ndim != 1 or one.shape != two.shape:
        raise ValueError(f"cannot pair {one.shape} with {two.shape}: give one value per task")
    if not all(((shares >= 0) & (shares <= 1)).all() for shares in (one, two)):
        raise ValueError("a paired difference needs shares from 0 to 1")
    if not one.size:
        return None
    change, tasks = two - one, one.size
    mean = float(change.mean())
    return difference_over_tasks(mean, (change - mean) / tasks, np.full(tasks, 1 / tasks))


def interval_over_tasks(
    estimate: float,
    influence: Floats,
    weights: Floats,
    other_variance: float = 0.0,
    freedom: float = math.inf,
) -> Interval:
    """Returns the interval of a share estimated from tasks, given each task's `influence` [tasks]
    on the estimate and its weight, `weights` [tasks], which sum to 1. `other_variance`: variance of
    the estimate from other sources than the choice of tasks; `freedom`: degrees of freedom of the
    whole variance."""
    tasks = 1 / float(weights @ weights)  # the effective number of equally weighted tasks
    # Add one task that is always won and one always lost: the spread seen in few tasks may be 0,
    # and a rare task that differs from the others may not be among them.
    shrunk = (estimate * tasks + 1) / (tasks + 2)
    moved = influence + (estimate - shrunk) * weights
    added = (shrunk**2 + (1 - shrunk) ** 2) / tasks**2
    variance = (float(moved @ moved) + added) * tasks / (tasks + 2) + other_variance
    return _score_interval(estimate, shrunk * (1 - shrunk) / variance, student_quantile(freedom))


def difference_over_tasks(
    estimate: float,
    influence: Floats,
    weights: Floats,
    other_variance: float = 0.0,
    freedom: float = math.inf,
) -> Interval:
    """Returns the interval of a difference of shares, from -1 to 1, by mapping it to a share: no
    change is the share 1/2. Arguments as for `interval_over_tasks`."""
    share = interval_over_tasks(
        (1 + estimate) / 2, influence / 2, weights, other_variance / 4, freedom
    )
    low, high = 2 * share.low - 1, 2 * share.high - 1
    return Interval(estimate, min(estimate, low), max(estimate, high))


def student_quantile(freedom: float) -> float:
    """Returns the 97.5% quantile of Student's t, by numerical integration after the substitution
    t = sqrt(freedom) tan(angle)."""
    if freedom > 10_000:  # the difference is below 0.0003
        return Z_95
    angles = np.linspace(0, math.pi / 2, 100_001)
    heights = np.cos(angles) ** (freedom - 1)
    below = np.cumsum(heights[1:] + heights[:-1])
    angle = float(np.interp(0.95 * below[-1], below, angles[1:]))
    return math.sqrt(freedom) * math.tan(angle)


def _score_interval(share: float, trials: float, quantile: float = Z_95) -> Interval:
    """Returns Wilson's interval with continuity correction; `trials` may be fractional."""

    def end(side: int) -> float:
        seen = min(max(share + side / (2 * trials), 0.0), 1.0)
        centre = seen + quantile**2 / (2 * trials)
        half = quantile * math.sqrt(seen * (1 - seen) / trials + quantile**2 / (4 * trials**2))
        return (centre + side * half) / (1 + quantile**2 / trials)

    # At the bounds the formula gives 0 and 1 up to rounding; keep the estimate inside.
    return Interval(share, max(0.0, min(share, end(-1))), min(1.0, max(share, end(1))))


def percentile_interval(estimate: float, resampled: npt.NDArray[np.floating]) -> Interval:
    """Returns an estimate with its percentile bootstrap interval: the middle 95% of its resampled
    values, extended to include the estimate."""
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Interval(estimate, min(estimate, float(low)), max(estimate, float(high)))
