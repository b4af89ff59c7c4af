"""Episodes weighed by how much likelier an update has made them."""

from __future__ import annotations

import math

import pytest

from helpers.benchmark_module import load_benchmark

BENCH = load_benchmark("carry_over")


def test_an_estimate_counts_won_episodes_by_their_weight_and_tasks_alike() -> None:
    twice, half = math.log(2), math.log(0.5)
    episodes = [
        BENCH.Weighed("a", True, twice),
        BENCH.Weighed("a", False, twice),  # lost: however likely, it wins nothing
        BENCH.Weighed("b", True, half),
        BENCH.Weighed("c", True, 0.0),
    ]
    gains = BENCH.estimated(episodes)
    assert gains == pytest.approx([0.5, -0.5, 0.0])
    assert BENCH.said(gains).startswith("+0.0 points [-")


def test_a_gain_that_all_tasks_share_is_said_as_it_is() -> None:
    assert BENCH.said([0.125, 0.125]) == "+12.5 points"


def test_one_episode_that_has_become_very_likely_does_not_decide() -> None:
    episodes = [BENCH.Weighed("a", True, 50.0), BENCH.Weighed("b", True, 0.0)]
    assert BENCH.estimated(episodes) == pytest.approx([math.e**3 - 1, 0.0])


def test_a_recipe_measured_again_has_one_section_and_others_stay() -> None:
    page = BENCH.written(BENCH.written("", "one", "one\n\nfirst"), "two", "two\n\nother")
    again = BENCH.written(page, "one", "one\n\nsecond")
    assert again.count("\n## ") == 2
    assert "first" not in again
    assert "## two\n\nother\n\n## one\n\nsecond\n" in again
