import math

import numpy as np
import pytest

from helpers.benchmark_module import load_benchmark

FEW = load_benchmark("few")
mean_of_few = FEW.mean_of_few


def test_the_interval_of_a_mean_of_few_is_students():
    interval = mean_of_few([1.0, 2.0, 3.0, 4.0, 5.0])
    assert interval is not None
    # mean 3, standard error sqrt(2.5 / 5), t of four degrees of freedom 2.776
    assert interval.estimate == 3.0
    assert interval.high - 3.0 == pytest.approx(2.776 * math.sqrt(0.5), abs=1e-3)
    assert 3.0 - interval.low == pytest.approx(interval.high - 3.0)


@pytest.mark.parametrize("count", [2, 5, 10])
def test_the_interval_of_a_mean_covers_the_truth_19_times_in_20(count):
    rng = np.random.default_rng(count)
    intervals = [mean_of_few(list(rng.normal(0.3, 2.0, count))) for _ in range(2000)]
    hits = sum(each.low <= 0.3 <= each.high for each in intervals if each)
    assert 0.935 <= hits / 2000 <= 0.965


def test_one_value_and_equal_ones_have_no_interval():
    assert mean_of_few([1.0]) is None
    assert mean_of_few([1.0, 1.0, 1.0]) is None
