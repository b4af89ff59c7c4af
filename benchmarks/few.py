"""The mean of few independent values, one per seed say, with Student's 95% interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import mpmath

from rlanything.evaluation.intervals import Interval


def mean_of_few(values: Sequence[float]) -> Interval | None:
    """Returns the mean with Student's interval; None for one value or none."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    half = t_95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def t_95(degrees: int) -> float:
    """Returns the 97.5% quantile of Student's t: the t with P(|T| > t) = 0.05, where P is the
    regularized incomplete beta function of degrees / (degrees + t^2)."""

    def excess(t: mpmath.mpf) -> mpmath.mpf:
        share = degrees / (degrees + t * t)
        return mpmath.betainc(degrees / 2, 0.5, 0, share, regularized=True) - 0.05

    return float(mpmath.findroot(excess, (1.9, 13.0), solver="anderson"))
