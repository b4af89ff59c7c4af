"""Conditions of a win: what holds, what is not understood, and what an environment must not say."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from rlanything.domains.base import DomainError
from rlanything_gyms.winning import BadReward, EpisodeEnd, RewardRange, WinRule, reward_of

WON = EpisodeEnd(2.5, 1.0, 7, True, {"score": np.float32(3.0), "is_success": True, "map": "4x4"})


@pytest.mark.parametrize(
    ("win", "holds"),
    [
        ({"return": ">= 2.5"}, True),
        ({"return": "> 2.5"}, False),
        ({"return": 2.5}, True),
        ({"reward": "==1"}, True),
        ({"reward": "!= 1"}, False),
        ({"steps": "< 8"}, True),
        ({"steps": "<= 6"}, False),
        ({"terminated": True}, True),
        ({"terminated": False}, False),
        ({"info.score": ">= 3", "info.is_success": True}, True),
        ({"info.score": ">= 3", "return": ">= 9"}, False),
    ],
)
def test_all_conditions_must_hold(win: dict[str, Any], holds: bool) -> None:
    assert WinRule.read(win).holds(WON) is holds


@pytest.mark.parametrize(
    ("win", "total", "holds"),
    [
        (">= 1", 0.6 + 0.3 + 0.1, True),
        (">= 1", float(np.float32(0.7)) + float(np.float32(0.3)), True),
        ("> 0.3", 0.1 + 0.2, False),
        ("== 0.3", 0.1 + 0.2, True),
        ("!= 0.3", 0.1 + 0.2, False),
        ("< 1", 1 - 2**-53, False),
        ("<= 1", 1 + 2**-52, True),
        ("> 0", 0.1 + 0.2 - 0.3, False),
        (">= 1", 0.9999, False),
        ("> 10000000", 10_000_001.0, True),
        ("== 10000000", 10_000_001.0, False),
    ],
)
def test_sums_are_compared_up_to_rounding_and_whole_numbers_exactly(
    win: str, total: float, holds: bool
) -> None:
    assert WinRule.read({"return": win}).reached(total) is holds


def test_a_return_may_miss_its_range_by_rounding() -> None:
    promised = RewardRange(0.0, 1.0)
    for total in (1 + 2**-52, 0.1 + 0.2 - 0.3, -1e-17):
        promised.check(total)
    with pytest.raises(BadReward, match="outside of"):
        promised.check(1.001)


@pytest.mark.parametrize(
    "win",
    [
        None,
        {},
        "reward > 0",
        ["return"],
        {"gain": ">= 1"},
        {"info.": ">= 1"},
        {7: 1},
        {"return": "__import__('os').abort()"},
        {"return": ">= 1; 2"},
        {"return": ">= one"},
        {"return": "> nan"},
        {"return": math.inf},
        {"return": None},
        {"return": "=> 1"},
    ],
)
def test_what_is_not_understood_is_refused_in_one_line(win: Any) -> None:
    with pytest.raises(DomainError, match="win") as error:
        WinRule.read(win)
    assert "\n" not in str(error.value)


def test_a_threshold_is_a_number() -> None:
    assert WinRule.at(0.5).reached(0.5)
    assert not WinRule.at(0.5).reached(0.49)
    for threshold in ("much", None, True, math.nan):
        with pytest.raises(DomainError, match="win_at"):
            WinRule.at(threshold)


def test_info_that_is_not_there_is_said_with_what_is() -> None:
    with pytest.raises(BadReward, match="no info 'won', but score, is_success, map"):
        WinRule.read({"info.won": True}).holds(WON)
    with pytest.raises(BadReward, match="and no number"):
        WinRule.read({"info.map": "== 1"}).holds(WON)


def test_rewards_are_finite_numbers() -> None:
    given = (1, True, np.float64(0.5), np.array(2), Decimal("0.5"))
    assert [reward_of(value) for value in given] == [1, 1, 0.5, 2, 0.5]
    for huge in (10**400, Decimal("sNaN")):
        with pytest.raises(BadReward, match="must give finite numbers"):
            reward_of(huge)
    for value in (math.nan, math.inf, "1", None, [1.0]):
        with pytest.raises(BadReward, match="finite numbers"):
            reward_of(value)


def test_a_return_lies_in_the_promised_range() -> None:
    RewardRange.read(None).check(1e9)
    RewardRange.read([0, 1]).check(1.0)
    with pytest.raises(BadReward, match=r"add up to 2, outside of \[0, 1\]"):
        RewardRange.read([0, 1]).check(2.0)
    for bounds in ("01", [1], [1, 0], [0, "much"], 3, [0, math.nan]):
        with pytest.raises(DomainError, match="reward_range"):
            RewardRange.read(bounds)
