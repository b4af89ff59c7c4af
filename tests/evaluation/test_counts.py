"""What a judge got right, item by item, with intervals over items."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.evaluation.counts import Counts, gain, level, pooled
from rlanything.evaluation.intervals import mean_over_tasks, wilson


def test_the_share_of_a_measure_is_pooled_over_the_items_that_have_it() -> None:
    items: dict[str, Counts] = {"a": {"x": (1, 1)}, "b": {"x": (0, 3)}, "c": {}}
    interval = level(items, ("x",))
    assert interval is not None
    assert interval.estimate == pooled(items)["x"] == 0.25
    assert interval.high - interval.low > 0.8
    assert level({"a": {"x": (0, 0)}}, ("x",)) is None
    assert level(items, ("x", "y")) is None


@pytest.mark.parametrize("hits", [0, 3])
def test_a_share_that_never_varies_says_what_as_many_items_as_trials_do(hits: int) -> None:
    interval, trials = (
        level({str(i): {"x": (hits, 3)} for i in range(10)}, ("x",)),
        wilson(10 * hits // 3, 10),
    )
    assert interval is not None
    assert trials is not None
    assert astuple(interval) == pytest.approx(astuple(trials))


def test_items_with_as_much_to_count_are_tasks_played_so_often() -> None:
    hits = [0, 1, 2, 3, 3, 0]
    interval = level({str(i): {"x": (hit, 3)} for i, hit in enumerate(hits)}, ("x",))
    over_tasks = mean_over_tasks([hit / 3 for hit in hits])
    assert interval is not None
    assert over_tasks is not None
    assert astuple(interval) == pytest.approx(astuple(over_tasks))


hits = st.integers(1, 9).flatmap(lambda t: st.tuples(st.integers(0, t), st.just(t)))


@given(st.lists(st.tuples(hits, hits), min_size=1, max_size=5))
def test_fewer_than_six_items_never_show_a_change(pairs: list[tuple[tuple[int, int], ...]]) -> None:
    before = {str(i): {"x": one} for i, (one, _) in enumerate(pairs)}
    after = {str(i): {"x": two} for i, (_, two) in enumerate(pairs)}
    change = gain(before, after, ("x",))
    assert change is not None
    assert change.low <= 0 <= change.high
    assert change.low < change.high
