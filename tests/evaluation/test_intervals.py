import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.evaluation.intervals import paired_difference, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, Statistics in Medicine 17, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_the_published_intervals(successes, trials, low, high):
    interval = wilson(successes, trials)
    assert interval is not None
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


@given(st.integers(1, 2000), st.data())
def test_wilson_contains_its_estimate_stays_in_bounds_and_mirrors(trials, data):
    successes = data.draw(st.integers(0, trials))
    interval, mirror = wilson(successes, trials), wilson(trials - successes, trials)
    assert interval is not None
    assert mirror is not None
    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    assert interval.low == pytest.approx(1 - mirror.high, abs=1e-12)


def test_wilson_without_trials_is_undefined_and_impossible_counts_are_refused():
    assert wilson(0, 0) is None
    with pytest.raises(ValueError, match="3 successes in 2 trials"):
        wilson(3, 2)


def test_paired_difference_is_the_difference_of_the_rates():
    interval = paired_difference([0, 0, 1, 1], [1, 1, 1, 0])
    assert interval is not None
    assert interval.estimate == pytest.approx(0.25)
    assert interval.low < 0.25 < interval.high


def test_paired_difference_repeats_with_its_seed():
    rng = np.random.default_rng(1)
    before, after = rng.integers(0, 2, 2000), rng.integers(0, 2, 2000)
    intervals = [
        paired_difference(before, after, seed=seed, resamples=100) for seed in (3, 3, 4, 5, 6)
    ]
    assert intervals[0] == intervals[1]
    assert len(set(intervals)) > 1


def test_paired_difference_agrees_with_a_bootstrap_that_resamples_episodes_one_by_one():
    rng = np.random.default_rng(2)
    before = rng.random(300) < 0.4
    after = np.where(rng.random(300) < 0.7, before, rng.random(300) < 0.8)
    change = after.astype(int) - before.astype(int)
    means = change[rng.integers(0, 300, (10_000, 300))].mean(axis=1)
    interval = paired_difference(before, after)
    assert interval is not None
    assert interval.low == pytest.approx(np.quantile(means, 0.025), abs=0.006)
    assert interval.high == pytest.approx(np.quantile(means, 0.975), abs=0.006)


def test_pairing_narrows_the_interval():
    rng = np.random.default_rng(5)
    before = rng.random(400) < 0.5
    after = before.copy()
    after[:40] = True
    paired = paired_difference(before, after)
    shuffled = paired_difference(before, rng.permutation(after))
    assert paired is not None
    assert shuffled is not None
    assert paired.high - paired.low < (shuffled.high - shuffled.low) / 2


def test_paired_difference_covers_the_truth_about_as_often_as_it_says():
    rng, hits = np.random.default_rng(11), 0
    for _ in range(300):
        before = rng.random(150) < 0.4
        after = np.where(rng.random(150) < 0.5, before, rng.random(150) < 0.6)
        interval = paired_difference(before, after, resamples=1000)
        assert interval is not None
        hits += interval.low <= 0.1 <= interval.high
    assert 0.90 <= hits / 300 <= 0.99


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [([0, 1], [1], "cannot pair"), ([0, 2], [1, 1], "from 0 to 1"), ([[0]], [[1]], "one value")],
)
def test_arrays_that_do_not_pair_are_refused(before, after, message):
    with pytest.raises(ValueError, match=message):
        paired_difference(before, after)


def test_no_episodes_no_interval():
    assert paired_difference([], []) is None
