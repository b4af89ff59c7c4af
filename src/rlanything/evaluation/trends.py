"""Trends in a series of measurements: a trend test, a fitted line, and the growth of a count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rlanything.evaluation.intervals import Interval, percentile_interval


def trend(values: Sequence[float]) -> float:
    """Returns the Mann-Kendall statistic: the number of rising minus falling pairs of values, in
    standard deviations of a random order; 0 if it is undefined.

    It only compares values, so a single outlier cannot make a trend. The variance is corrected for
    ties, the count for continuity (Mann 1945, Kendall 1975)."""
    series = np.asarray(values, dtype=np.float64)
    n = len(series)
    rises = np.sign(series[None, :] - series[:, None])[np.triu_indices(n, 1)].sum()
    ties = np.unique(series, return_counts=True)[1]
    variance = (_pairs(n) - sum(_pairs(int(tied)) for tied in ties)) / 18
    if variance <= 0:
        return 0.0
    return float((rises - np.sign(rises)) / variance**0.5)


def fitted_change(values: Sequence[float]) -> float:
    """Returns the rise of the least-squares line from the first value to the last."""
    return 0.0 if len(values) < 2 else _slope(np.asarray(values, float)) * (len(values) - 1)


def growth(increments: Sequence[float], *, seed: int = 0, resamples: int = 2000) -> Interval | None:
    """Returns the slope, per increment, of the least-squares line through the running sum of
    non-negative increments (such as accepted tasks per iteration); None for fewer than 3, or if all
    are 0.

    Values of a running sum are correlated, so the textbook interval of a slope is far too narrow.
    Increments are resampled instead, then summed and fitted. The resampled set also contains 0 and
    twice the mean, because a few equal increments do not exclude others."""
    steps = np.asarray(increments, dtype=np.float64)
    if len(steps) < 3 or not steps.any():
        return None
    known = np.append(steps, [0.0, 2 * steps.mean()])
    drawn = np.random.default_rng(seed).choice(known, size=(resamples, len(steps)))
    resampled = np.array([_slope(np.cumsum(series)) for series in drawn])
    return percentile_interval(_slope(np.cumsum(steps)), resampled)


def _pairs(n: int) -> int:
    return n * (n - 1) * (2 * n + 5)


def _slope(values: npt.NDArray[np.float64]) -> float:
    time = np.arange(len(values)) - (len(values) - 1) / 2
    return float(time @ values / (time @ time))
