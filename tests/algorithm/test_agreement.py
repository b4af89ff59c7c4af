"""lambda that adapts to how clearly a judge's scores agree with outcomes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.algorithm.agreement import (
    ITERATIONS,
    Agreement,
    adapted,
    agreement,
    agreements,
    shrinkage,
    weighed,
)
from rlanything.algorithm.feedback import FeedbackSettings, combined_score
from rlanything.algorithm.signals import task_signals

Group = tuple[list[int], list[list[list[int]]]]

scores = st.lists(st.lists(st.sampled_from([-1, 0, 1]), max_size=3), max_size=4)
group = st.lists(st.tuples(st.sampled_from([-1, 1]), scores), min_size=1, max_size=5)


def measured(groups: list[Group]) -> list[Agreement]:
    return [own for one in groups if (own := agreement(*one)) is not None]


def played(rng: np.random.Generator, tasks: int, right: float, right_by_task: float = 0) -> float:
    """The factor of a judge whose scores equal the outcome with this probability, which differs
    between tasks by a deviation of `right_by_task`."""
    outcomes = np.where(rng.random((tasks, 8)) < 0.5, -1, 1)
    share = np.clip(right + right_by_task * rng.normal(size=(tasks, 1, 1)), 0, 1)
    scores = np.where(rng.random((tasks, 8, 5)) < share, 1, -1) * outcomes[..., None]
    lengths = rng.integers(2, 6, size=(tasks, 8)).tolist()
    groups: list[Group] = [
        (own, [[[one] for one in row[:n]] for row, n in zip(steps, ends, strict=True)])
        for own, steps, ends in zip(outcomes.tolist(), scores.tolist(), lengths, strict=True)
    ]
    return shrinkage(measured(groups))


def test_a_judge_at_chance_keeps_little_of_lambda_and_next_to_nothing_of_its_noise() -> None:
    rng = np.random.default_rng(0)
    factors = np.array([played(rng, 30, 0.5, right_by_task=0.1) for _ in range(200)])
    # (1 - 1/z^2)+ of a standard normal z has mean 0.075, and its square 0.045.
    assert factors.mean() == pytest.approx(0.075, abs=0.04)
    assert (factors**2).mean() == pytest.approx(0.045, abs=0.03)


def test_a_judge_slightly_better_than_chance_gets_the_more_the_more_tasks_there_are() -> None:
    rng = np.random.default_rng(1)
    means = [np.mean([played(rng, tasks, 0.56) for _ in range(40)]) for tasks in (5, 20, 80)]
    assert means == sorted(means)
    assert means[0] < 0.5 < 0.8 < means[-1]


def test_scores_like_the_outcomes_keep_lambda_and_opposite_ones_lose_it() -> None:
    rng = np.random.default_rng(2)
    assert played(rng, 20, 1.0) == pytest.approx(1)
    assert played(rng, 20, 0.9) > 0.97
    assert played(rng, 20, 0.0) == 0
    assert played(rng, 20, 0.1) == 0


def test_one_task_is_too_little() -> None:
    right = agreement([1, -1], [[[1], [1]], [[-1], [-1]]])
    assert right is not None
    assert shrinkage([]) == shrinkage([right]) == 0
    assert shrinkage([right, right]) == 1


@given(st.lists(group, min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_tasks_and_rollouts_changes_no_bit(tasks, random) -> None:
    before = shrinkage(measured([([o for o, _ in own], [s for _, s in own]) for own in tasks]))
    mixed = [random.sample(own, len(own)) for own in random.sample(tasks, len(tasks))]
    after = shrinkage(measured([([o for o, _ in own], [s for _, s in own]) for own in mixed]))
    assert before == after
    assert 0 <= before <= 1


@given(group)
def test_unreadable_scores_are_missing(members) -> None:
    outcomes = [outcome for outcome, _ in members]
    steps = [own for _, own in members]
    readable = [[[score for score in step if score] for step in own] for own in steps]
    assert agreement(outcomes, steps) == agreement(outcomes, readable)


def test_steps_are_compared_at_the_same_index() -> None:
    """A judge that likes early steps agrees with outcomes only because wins are shorter."""
    early = [[[1], [-1], [-1]], [[1], [-1], [-1], [-1], [-1]]]
    assert agreement([1, -1], early) == (0, 4)


def test_the_last_step_may_give_the_outcome_away() -> None:
    told = [[[1], [-1], [1]], [[1], [-1], [-1]]]
    assert agreement([1, -1], told) == (0, 4)
    assert agreement([1, -1], told, last=True) == (2, 6)
    assert agreement([1, -1], [[[1]], [[-1], [-1]]]) is None  # the win has no other step


def test_last_steps_count_only_if_there_are_no_others() -> None:
    short = [("a", 1, {"judge": [[1]]}), ("a", -1, {"judge": [[-1]]})]
    long = [("b", 1, {"judge": [[1], [1]]}), ("b", -1, {"judge": [[1], [-1]]})]
    assert agreements(short) == {"judge": {"a": (2, 2)}}
    assert agreements([*short, *long]) == {"judge": {"b": (0, 2)}}


def test_tasks_won_or_lost_by_all_have_no_agreement() -> None:
    assert agreement([1, 1], [[[1], [1]], [[-1], [1]]]) is None
    found = agreements(
        [
            ("a", 1, {"one": [[1], [1]], "two": [[-1], [1]]}),
            ("b", 1, {"one": [[1], [1]], "two": [[1], [1]]}),
            ("a", -1, {"one": [[-1], [1]], "two": [[1], [1]]}),
        ]
    )
    assert found == {"one": {"a": (2, 2)}, "two": {"a": (-2, 2)}}


def test_the_latest_iterations_are_pooled() -> None:
    def judged(task: str, sign: int) -> dict[str, dict[str, Agreement]]:
        return {"judge": {task: (2.0 * sign, 2.0)}}

    good, late = judged("a", 1), ITERATIONS + 1
    assert adapted(0.5, {1: good}, 1) == {"judge": 0}
    assert adapted(0.5, {1: good, 2: judged("b", 1)}, 2) == {"judge": 0.5}
    recent = {late - 1: good, late: judged("b", 1)}
    assert adapted(1.0, {1: judged("c", -1), **recent}, late) == {"judge": 1}
    assert adapted(1.0, {2: judged("c", -1), **recent}, late) == {"judge": 0}
    # A later iteration, which a run that goes back has measured before, is not seen.
    assert adapted(1.0, {1: good, 2: judged("b", 1), 3: judged("c", -1)}, 2) == {"judge": 1}


def test_a_task_that_is_played_again_is_no_second_task() -> None:
    often = {i: {"judge": {"a": (2.0, 2.0)}} for i in range(1, 9)}
    assert adapted(1.0, often, 8) == {"judge": 0}
    others = {i: {"judge": {"a": (2.0, 2.0), "b": (0.0, 2.0)}} for i in range(1, 9)}
    assert adapted(1.0, others, 8) == adapted(1.0, others, 1)


def test_each_judge_has_its_own_lambda() -> None:
    weights = {"one": 3.0, "two": 1.0, "three": 2.0}
    policy_lambda, own = weighed({"one": 0.5, "two": 1.0, "three": 0.0}, weights)
    mean = combined_score([[1], [-1]], [own["one"], own["two"]])
    assert own.keys() == {"one", "two"}
    assert policy_lambda * mean == pytest.approx((3 * 0.5 * 1 + 1 * 1.0 * -1 + 0) / 6)
    assert weighed({"one": 0.0, "two": 0.0}, weights) == (0, {"one": 3, "two": 1})


def test_a_single_task_cannot_measure_lambda() -> None:
    settings = FeedbackSettings(policy_lambda_control="adaptive", policy_lambda=2)
    with pytest.raises(ValueError, match=r"many tasks; give settings\.with_lambda"):
        task_signals([1, -1], [[[1]], [[-1]]], settings)
    assert settings.with_lambda(0.5) == FeedbackSettings(policy_lambda=0.5)
