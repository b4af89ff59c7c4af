import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.evaluation.intervals import mean_over_tasks, paired_difference, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (81, 263, 0.2535, 0.3682),  # Newcombe 1998, Statistics in Medicine 17, table I, method 4
        (15, 148, 0.0598, 0.1644),
        (0, 20, 0.0, 0.2005),
        (1, 29, 0.0018, 0.1963),
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


shares = st.integers(1, 8).flatmap(
    lambda rollouts: st.lists(
        st.integers(0, rollouts).map(lambda won: won / rollouts), min_size=1, max_size=60
    )
)


@given(shares)
def test_a_mean_over_tasks_has_a_width_holds_its_estimate_and_mirrors(won):
    interval, mirror = mean_over_tasks(won), mean_over_tasks([1 - share for share in won])
    assert interval is not None
    assert mirror is not None
    assert interval.estimate == pytest.approx(np.mean(won))
    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    assert interval.low < interval.high
    assert interval.low == pytest.approx(1 - mirror.high, abs=1e-12)


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_tasks_that_are_played_once_are_trials(won):
    over_tasks, trials = mean_over_tasks(won), wilson(sum(won), len(won))
    assert over_tasks is not None
    assert trials is not None
    assert over_tasks.low == pytest.approx(trials.low, abs=1e-9)
    assert over_tasks.high == pytest.approx(trials.high, abs=1e-9)


@given(st.integers(1, 60), st.sampled_from([0.0, 1.0]))
def test_all_won_or_all_lost_says_what_as_many_single_episodes_would(tasks, share):
    several, once = mean_over_tasks([share] * tasks), wilson(int(share) * tasks, tasks)
    assert several is not None
    assert once is not None
    assert several.low == pytest.approx(once.low, abs=1e-9)
    assert several.high == pytest.approx(once.high, abs=1e-9)


def test_tasks_much_alike_say_more_than_tasks_that_differ():
    alike, different = mean_over_tasks([0.5] * 20), mean_over_tasks([0.0, 1.0] * 10)
    assert alike is not None
    assert different is not None
    assert alike.high - alike.low < (different.high - different.low) / 2


@given(st.lists(st.tuples(st.sampled_from([0, 0.25, 0.5, 1]), st.floats(0, 1)), min_size=1))
def test_a_paired_difference_has_a_width_holds_its_estimate_and_mirrors(pairs):
    before, after = [one for one, _ in pairs], [two for _, two in pairs]
    interval, mirror = paired_difference(before, after), paired_difference(after, before)
    assert interval is not None
    assert mirror is not None
    assert -1 <= interval.low <= interval.estimate <= interval.high <= 1
    assert interval.low < interval.high
    assert interval.low == pytest.approx(-mirror.high, abs=1e-9)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5))
def test_fewer_than_six_tasks_never_show_a_change(pairs):
    interval = paired_difference([one for one, _ in pairs], [two for _, two in pairs])
    assert interval is not None
    assert interval.low <= 0 <= interval.high


@pytest.mark.parametrize("unchanged", [0, 100])
def test_six_tasks_that_change_the_same_way_show_a_change_and_five_do_not(unchanged):
    # By chance, six have a probability of 2/64, five of 2/32.
    for changed, shown in ((5, False), (6, True)):
        after = [1] * changed + [0] * unchanged
        interval = paired_difference([0] * len(after), after)
        assert interval is not None
        assert (interval.low > 0) == shown


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [([0, 1], [1], "cannot pair"), ([0, 2], [1, 1], "from 0 to 1"), ([[0]], [[1]], "one value")],
)
def test_arrays_that_do_not_pair_are_refused(before, after, message):
    with pytest.raises(ValueError, match=message):
        paired_difference(before, after)


def test_no_episodes_no_interval():
    assert paired_difference([], []) is None
