"""Success where some episodes could not be played: over what was, with bounds for what was not."""

from __future__ import annotations

import random

import pytest

from rlanything.evaluation.intervals import mean_over_tasks
from rlanything.evaluation.success import Evaluation, success_bounds, success_interval
from rlanything.records import Task, Trajectory


def evaluation(outcomes: list[int], tasks: list[str] | None = None) -> Evaluation:
    named = [Task(name, "") for name in tasks or map(str, range(len(outcomes)))]
    pairs = list(zip(named, outcomes, strict=True))
    return Evaluation(
        "ood",
        tuple(Trajectory("", task, (), outcome) for task, outcome in pairs if outcome),
        tuple(task for task, outcome in pairs if not outcome),
        0.0,
    )


def test_without_unplayable_episodes_the_interval_is_what_it_was() -> None:
    once = evaluation([1, 1, -1, 1, -1, 1, 1])
    assert (once.success, once.bounds) == (mean_over_tasks([1, 1, 0, 1, 0, 1, 1]), None)
    twice = evaluation([1, 1, -1, 1, -1, -1], list("aabbcc"))
    assert (twice.success, twice.bounds) == (mean_over_tasks([1.0, 0.5, 0.0]), None)


def test_leaving_an_episode_out_raises_neither_bound_nor_lower_end() -> None:
    honest = evaluation([1] * 6 + [-1] * 6)
    hiding = evaluation([1] * 6 + [0] * 6)
    assert honest.success is not None
    assert hiding.success is not None
    assert hiding.success.estimate == 1.0
    assert hiding.bounds == (0.5, 1.0)
    assert hiding.success.low <= honest.success.low
    assert hiding.success.high == 1.0
    assert "6 unplayable" in repr(hiding)


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_interval_holds_whatever_unplayable_episodes_might_have_been(repeats: int) -> None:
    rng = random.Random(repeats)
    for _ in range(50):
        outcomes = [rng.choice((-1, 0, 1)) for _ in range(12)]
        tasks = [str(i // repeats) for i in range(12)]
        measured, bounds = success_interval(tasks, outcomes), success_bounds(tasks, outcomes)
        if measured is None or bounds is None:
            continue
        truth = [outcome or rng.choice((-1, 1)) for outcome in outcomes]
        imagined = success_interval(tasks, truth)
        assert imagined is not None
        assert bounds[0] - 1e-12 <= imagined.estimate <= bounds[1] + 1e-12
        assert measured.low <= bounds[0] <= bounds[1] <= measured.high


def test_an_evaluation_none_of_which_could_be_played_says_nothing() -> None:
    assert evaluation([0, 0]).success is None
    assert evaluation([0, 0]).bounds == (0.0, 1.0)
    assert evaluation([]).success is None
    assert evaluation([]).bounds is None


def test_a_mean_reward_counts_unplayable_episodes_as_nothing_and_is_given_both_ways() -> None:
    def rewarded(*rewards: float | None, unplayable: int = 0) -> Evaluation:
        played = [Trajectory("", Task(str(i), ""), (), -1, r) for i, r in enumerate(rewards)]
        return Evaluation("ood", tuple(played), (Task("u", ""),) * unplayable, 0.0)

    assert rewarded(0.5, 1.0, None).mean_reward == (0.5, 0.5)
    assert rewarded(0.5, 1.0, unplayable=4).mean_reward == (0.75, 0.25)
    assert rewarded(None, None, unplayable=1).mean_reward is None
    assert rewarded(unplayable=1).mean_reward is None
