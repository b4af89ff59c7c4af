"""Trends in a series of measurements: a test, a line, and the growth of a count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rlanything.evaluation.intervals import Interval, percentile_interval


def trend(values: Sequence[float]) -> float:
    """Returns Mann and Kendall's statistic: of all pairs of values, those that rise minus those
    that fall, in standard deviations of what an order by chance would give; 0 where nothing can be
    told.

    It asks only which of two values is the larger, so one wild iteration cannot make a trend. The
    variance is corrected for ties, the count for continuity (Mann 1945, Kendall 1975)."""
    series = np.asarray(values, dtype=np.float64)
    n = len(series)
    rises = np.sign(series[None, :] - series[:, None])[np.triu_indices(n, 1)].sum()
    ties = np.unique(series, return_counts=True)[1]
    variance = (_pairs(n) - sum(_pairs(int(tied)) for tied in ties)) / 18
    if variance <= 0:
        return 0.0
    return float((rises - np.sign(rises)) / variance**0.5)


def fitted_change(values: Sequence[float]) -> float:
    """Returns how far the least-squares line rises from the first value to the last."""
    return 0.0 if len(values) < 2 else _slope(np.asarray(values, float)) * (len(values) - 1)


def growth(increments: Sequence[float], *, seed: int = 0, resamples: int = 2000) -> Interval | None:
    """Returns the slope of the least-squares line through the running sum of the increments
    (accepted tasks an iteration, say), none negative, per increment; None for fewer than 3, and
    where nothing grew.

    A running sum remembers every increment, so the textbook interval of a slope is far too narrow
    for it: increments are drawn anew instead and summed and fitted each time. Two more are among
    those drawn, 0 and twice the mean: a few equal ones do not say that none would differ."""
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
