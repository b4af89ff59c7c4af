"""The mean of few independent values, one per seed say, with Student's 95% interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy import stats

from rlanything.evaluation.intervals import Interval


def mean_of_few(values: Sequence[float]) -> Interval | None:
    """Returns the mean with Student's interval; None for one value or none, and for equal ones,
    which do not say how much others would differ."""
    if len(set(values)) < 2:
        return None
    mean = statistics.fmean(values)
    half = (
        float(stats.t.ppf(0.975, len(values) - 1))
        * statistics.stdev(values)
        / math.sqrt(len(values))
    )
    return Interval(mean, mean - half, mean + half)
