"""Intervals over seeds and items, against what can be worked out by hand."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rlanything.evaluation.crossed import counted, crossed_difference, crossed_mean
from rlanything.evaluation.intervals import mean_over_tasks, paired_difference, student_quantile

ITEMS = [f"t{i}" for i in range(40)]


def won(*outcomes: list[int]):
    """One attempt at each task, for each seed."""
    items = [f"t{i}" for i in range(len(outcomes[0]))]
    return counted(
        [{t: [(o, 1)] for t, o in zip(items, each, strict=True)} for each in outcomes], items, 1
    )


def test_the_value_is_the_mean_over_seeds_of_the_share_over_items():
    found = counted([{"a": [(1, 4)], "b": [(3, 4)]}, {"a": [(0, 1)]}], ["a", "b"], 1)
    interval = crossed_mean(found)
    assert interval is not None
    assert interval.estimate == pytest.approx((4 / 8 + 0 / 1) / 2)


def test_kinds_weigh_the_same_however_rare_one_is():
    found = counted([{"a": [(9, 10), (0, 1)], "b": [(9, 10), (1, 1)]}], ["a", "b"], 2)
    interval = crossed_mean(found)
    assert interval is not None
    assert interval.estimate == pytest.approx((18 / 20 + 1 / 2) / 2)


def test_seeds_that_differ_widen_what_tasks_leave_narrow():
    alike = crossed_mean(won([1, 0] * 20, [1, 0] * 20))
    apart = crossed_mean(won([1] * 40, [0] * 40))
    assert alike is not None
    assert apart is not None
    assert alike.estimate == apart.estimate == 0.5
    assert apart.high - apart.low > 2 * (alike.high - alike.low)


def test_the_width_has_a_share_of_seeds_and_a_share_of_tasks():
    rng = np.random.default_rng(0)
    skill, ease = rng.normal(0, 0.1, 5), rng.normal(0, 0.2, 200)
    chances = np.clip(0.5 + skill[:, None] + ease, 0, 1)
    hits = np.round(chances * 1000).astype(int)
    names = [str(i) for i in range(200)]
    found = counted(
        [{n: [(int(h), 1000)] for n, h in zip(names, each, strict=True)} for each in hits], names, 1
    )
    interval = crossed_mean(found)
    assert interval is not None
    values = hits / 1000
    of_seeds, of_tasks = values.mean(axis=1).var(ddof=1) / 5, values.mean(axis=0).var() / 200
    whole = of_seeds + of_tasks
    width = 2 * stats.t.ppf(0.975, 4 * (whole / of_seeds) ** 2) * whole**0.5
    assert interval.high - interval.low == pytest.approx(width, rel=0.1)


@pytest.mark.parametrize(
    ("seeds", "apart"), [(3, 0.0), (3, 0.06), (5, 0.03), (5, 0.1), (10, 0.06), (20, 0.0)]
)
def test_a_difference_holds_the_truth_as_often_as_it_says(seeds: int, apart: float) -> None:
    rng = np.random.default_rng(seeds)

    def one() -> bool:
        chances = rng.random(100)
        later = np.clip(chances + rng.normal(0, apart, (seeds, 1)), 0, 1)
        before, after = (rng.random((seeds, 100)) < each for each in (chances, later))
        change = crossed_difference(won(*before.astype(int)), won(*after.astype(int)))
        assert change is not None
        return change.low <= 0 <= change.high

    assert sum(one() for _ in range(300)) / 300 >= 0.93


@pytest.mark.parametrize("freedom", [1.0, 2.0, 4.7, 19.0, 300.0, 2e4])
def test_the_quantile_is_students(freedom: float) -> None:
    assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=2e-4)


def test_what_every_seed_and_task_gains_alike_is_no_certainty():
    alike = counted([{t: [(1, 4)] for t in ITEMS}] * 3, ITEMS, 1)
    more = counted([{t: [(2, 4)] for t in ITEMS}] * 3, ITEMS, 1)
    gain = crossed_difference(alike, more)
    assert gain is not None
    assert gain.estimate == 0.25
    assert 0.15 < gain.low < 0.25 < gain.high < 0.35


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_with_one_seed_it_is_the_interval_over_tasks(pairs):
    before, after = [int(a) for a, _ in pairs], [int(b) for _, b in pairs]
    ours, theirs = crossed_difference(won(before), won(after)), paired_difference(before, after)
    single, over_tasks = crossed_mean(won(before)), mean_over_tasks(before)
    for one, two in ((ours, theirs), (single, over_tasks)):
        assert one is not None
        assert two is not None
        assert astuple(one) == pytest.approx(astuple(two))


totals = st.integers(0, 9).flatmap(lambda t: st.tuples(st.integers(0, t), st.just(t)))
table = st.integers(1, 4).flatmap(
    lambda seeds: st.lists(
        st.lists(totals, min_size=2 * seeds, max_size=2 * seeds), min_size=1, max_size=12
    )
)


@settings(max_examples=25)
@given(table)
def test_no_interval_of_finite_data_is_without_width(items):
    names, sides = [str(i) for i in range(len(items))], []
    for side in range(2):  # a seed of either side in turns
        seeds = range(side, len(items[0]), 2)
        by_seed = [{n: [row[s]] for n, row in zip(names, items, strict=True)} for s in seeds]
        sides.append(counted(by_seed, names, 1))
    level, gain, back = (
        crossed_mean(sides[0]),
        crossed_difference(sides[0], sides[1]),
        crossed_difference(sides[1], sides[0]),
    )
    for interval, lowest in ((level, 0), (gain, -1)):
        if interval is not None:
            assert lowest <= interval.low <= interval.estimate <= interval.high <= 1
            assert interval.low < interval.high
    assert (gain is None) == (back is None)
    if gain is not None and back is not None:
        assert gain.low == pytest.approx(-back.high, abs=1e-9)


def test_an_item_that_outweighs_all_others_is_one_item():
    heavy = {"a": [(900, 900)]} | {t: [(0, 1)] for t in ITEMS}
    interval = crossed_mean(counted([heavy], ["a", *ITEMS], 1))
    assert interval is not None
    assert interval.high - interval.low > 0.7


def test_where_nothing_was_counted_there_is_no_interval():
    assert crossed_mean(counted([{}], [], 1)) is None
    assert crossed_mean(counted([{"a": [(0, 0)]}], ["a"], 1)) is None


def test_a_seed_without_anything_to_count_is_left_out():
    interval = crossed_mean(counted([{"a": [(1, 2)]}, {"a": [(0, 0)]}], ["a"], 1))
    assert interval is not None
    assert interval.estimate == 0.5


def test_different_seeds_or_items_cannot_be_paired():
    with pytest.raises(ValueError, match="cannot pair"):
        crossed_difference(won([1, 0]), won([1, 0], [0, 1]))
