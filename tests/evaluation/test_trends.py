"""Trends of short series."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.evaluation.trends import fitted_change, growth, trend


def test_a_strict_rise_has_the_statistic_of_the_textbook() -> None:
    # n = 10: 45 pairs rise, the variance is 10 * 9 * 25 / 18 = 125.
    assert trend(list(range(10))) == pytest.approx(44 / math.sqrt(125))


def test_ties_shrink_the_variance() -> None:
    # 5 pairs rise; of the 4 * 3 * 13 a tied pair takes 2 * 1 * 9.
    assert trend([1, 2, 2, 3]) == pytest.approx(4 / math.sqrt((156 - 18) / 18))


@given(st.lists(st.floats(-5, 5), max_size=15))
def test_a_series_backwards_has_the_opposite_trend(values: list[float]) -> None:
    assert trend(values) == pytest.approx(-trend(values[::-1]))


@pytest.mark.parametrize("values", [[], [3.0], [2.0] * 9])
def test_nothing_can_be_told_of_what_does_not_differ(values: list[float]) -> None:
    assert trend(values) == 0.0
    assert fitted_change(values) == 0.0


@given(st.floats(-1, 1), st.floats(-1, 1), st.integers(2, 20))
def test_the_fitted_change_of_a_line_is_its_rise(start: float, slope: float, n: int) -> None:
    line = [start + slope * i for i in range(n)]
    assert fitted_change(line) == pytest.approx(slope * (n - 1), abs=1e-9)


def test_growth_is_the_slope_of_the_running_sum() -> None:
    found = growth([2, 2, 2, 2, 2])
    assert found is not None
    assert found.estimate == pytest.approx(2)
    assert 0 < found.low < 2 < found.high
    assert growth([1, 2]) is None
    assert growth([0, 0, 0]) is None


@given(st.lists(st.integers(0, 5), min_size=3, max_size=10))
def test_the_interval_of_growth_has_a_width_and_holds_its_estimate(accepted: list[int]) -> None:
    interval = growth(accepted, resamples=200)
    if interval is not None:
        assert interval.low <= interval.estimate <= interval.high
        assert interval.low < interval.high


def test_the_interval_of_growth_holds_the_rate_as_often_as_it_says() -> None:
    rng, rate = np.random.default_rng(0), 0.8
    held = 0
    for seed in range(200):
        found = growth([float(n) for n in rng.poisson(rate, size=60)], seed=seed, resamples=300)
        assert found is not None
        held += found.low <= rate <= found.high
    assert 0.88 <= held / 200 <= 0.99
