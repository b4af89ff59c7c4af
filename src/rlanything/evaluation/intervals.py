"""How sure a measurement is: 95% intervals for a proportion, a paired difference, a mean of few."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Z_95 = 1.959963984540054
"""The 97.5% quantile of the standard normal distribution."""
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5% quantile of Student's t with 1, 2, ... 9 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the ends of its 95% interval."""

    estimate: float
    low: float
    high: float


def wilson(successes: int, trials: int) -> Interval | None:
    """Wilson's score interval (1927) for a proportion; None without trials.

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
    """Rate of `after` minus rate of `before`, two binary arrays [episodes] paired by episode.

    The interval is the percentile bootstrap over episodes, the same for the same seed; None without
    episodes. It has no width where every episode changed alike (or none did): then too few episodes
    were compared for the bootstrap to say anything. Raises ValueError unless both are binary and
    equally long."""
    one, two = np.asarray(before), np.asarray(after)
    if one.ndim != 1 or one.shape != two.shape:
        raise ValueError(f"cannot pair {one.shape} with {two.shape}: give one value per episode")
    if not (np.isin(one, (0, 1)).all() and np.isin(two, (0, 1)).all()):
        raise ValueError("a paired difference needs arrays of 0 and 1")
    if not one.size:
        return None
    change = two.astype(np.int64) - one.astype(np.int64)
    # A change is -1, 0 or +1, so resampling the episodes is one multinomial draw of their counts.
    counts = np.array([(change == value).sum() for value in (-1, 0, 1)])
    draws = np.random.default_rng(seed).multinomial(one.size, counts / one.size, size=resamples)
    return percentile_interval(float(change.mean()), (draws[:, 2] - draws[:, 0]) / one.size)


def percentile_interval(estimate: float, resampled: npt.NDArray[np.floating]) -> Interval:
    """The percentile bootstrap: an estimate with the middle 95% of its resampled values."""
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Interval(estimate, float(low), float(high))


def mean_of_few(values: Sequence[float]) -> Interval | None:
    """The mean of independent values, one per seed say, with Student's interval; None for one value
    or none. From 11 values on the normal quantile would do; more than 10 are refused (ValueError).
    """
    if len(values) < 2:
        return None
    if len(values) - 1 > len(T_95):
        raise ValueError(f"{len(values)} values: give at most {len(T_95) + 1}")
    mean = statistics.fmean(values)
    half = T_95[len(values) - 2] * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)
