"""How sure a measurement is: 95% intervals of proportions, paired differences and means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Z_95 = 1.959963984540054
"""The 97.5% quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the ends of its 95% interval."""

    estimate: float
    low: float
    high: float


def wilson(successes: int, trials: int) -> Interval | None:
    """Returns Wilson's score interval (1927) for a proportion; None without trials.

    Raises ValueError unless 0 <= successes <= trials."""
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    if trials == 0:
        return None
    share = successes / trials
    denominator = 1 + Z_95**2 / trials
    centre = (share + Z_95**2 / (2 * trials)) / denominator
    half = Z_95 * math.sqrt(share * (1 - share) / trials + Z_95**2 / (4 * trials**2)) / denominator
    # At the ends the formula gives 0 and 1 up to rounding; an estimate never leaves its interval.
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def paired_difference(
    before: npt.ArrayLike, after: npt.ArrayLike, *, seed: int = 0, resamples: int = 10_000
) -> Interval | None:
    """Returns the mean of `after` minus that of `before`, two arrays [tasks] of shares won, paired
    by task: 0 or 1 where a task is played once.

    The interval is the percentile bootstrap over tasks, the same for the same seed; None without
    tasks. It has no width where every task changed alike (or none did): then too few were compared
    for the bootstrap to say anything. Raises ValueError unless both are equally long and all values
    lie in [0, 1]."""
    one, two = np.asarray(before), np.asarray(after)
    if one.ndim != 1 or one.shape != two.shape:
        raise ValueError(f"cannot pair {one.shape} with {two.shape}: give one value per task")
    if not all(((each >= 0) & (each <= 1)).all() for each in (one, two)):
        raise ValueError("a paired difference needs shares from 0 to 1")
    if not one.size:
        return None
    change = two.astype(np.float64) - one.astype(np.float64)
    # Changes take few values, so resampling the tasks is one multinomial draw of their counts.
    values = np.union1d((-1.0, 0.0, 1.0), change)
    counts = np.array([(change == value).sum() for value in values])
    draws = np.random.default_rng(seed).multinomial(one.size, counts / one.size, size=resamples)
    return percentile_interval(float(change.mean()), draws @ values / one.size)


def mean_over_tasks(shares: Sequence[float], *, seed: int = 0) -> Interval | None:
    """Returns the mean of shares [tasks] with the percentile bootstrap over tasks, for tasks that
    were played several times each: their episodes are no independent trials. None without tasks."""
    values = np.asarray(shares, dtype=np.float64)
    if not values.size:
        return None
    drawn = np.random.default_rng(seed).integers(values.size, size=(10_000, values.size))
    return percentile_interval(float(values.mean()), values[drawn].mean(axis=1))


def percentile_interval(estimate: float, resampled: npt.NDArray[np.floating]) -> Interval:
    """Returns an estimate with the percentile bootstrap: the middle 95% of its resampled values."""
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Interval(estimate, float(low), float(high))
