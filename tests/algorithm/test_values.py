"""Values of states: V from grades, the reward of a judge of value, and progress in a graph."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.algorithm.advantages import AdvantageInputs, GraphOptions, graph
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.algorithm.rewards import RewardInputs, proper
from rlanything.algorithm.signals import state_values, task_signals
from rlanything.plugins import PluginError

answers = st.lists(st.integers(-1, 10), min_size=1, max_size=4)
graded = st.tuples(st.sampled_from([-1, 1]), st.lists(answers, min_size=1, max_size=5))
group = st.lists(graded, min_size=1, max_size=5)


@cache
def settings(gae_lambda: float | None = None) -> FeedbackSettings:
    chosen = {"policy_window": (0, 1), "judge_window": (0, 1), "judge_reward": "proper"}
    if gae_lambda is not None:
        chosen |= {"advantage": {"name": "gae", "options": {"gae_lambda": gae_lambda}}}
    return FeedbackSettings.model_validate(chosen)


def by_gae(rollouts: Any, gae_lambda: float) -> tuple[list[int], list[np.ndarray]]:
    """Outcomes, and the policy's advantages from the grades of one judge of value."""
    outcomes, grades = [o for o, _ in rollouts], [steps for _, steps in rollouts]
    scores = [[[1 if grade >= 5 else -1 for grade in step] for step in steps] for steps in grades]
    signals = task_signals(
        outcomes, {"value": scores}, settings(gae_lambda), grades={"value": grades}
    )
    return outcomes, [np.asarray(each) for each in signals.policy]


@given(group)
def test_no_grades_can_change_what_an_episode_earns_in_all(rollouts):
    """Shaping by values is potential-based: over an episode its sum telescopes to O - V_0."""
    outcomes, advantages = by_gae(rollouts, 0.0)
    start = sum(outcomes) / len(outcomes)
    for outcome, own in zip(outcomes, advantages, strict=True):
        assert own.sum() == pytest.approx(outcome - start)


@given(group)
def test_with_lambda_one_values_are_a_baseline_of_the_outcome(rollouts):
    outcomes, advantages = by_gae(rollouts, 1.0)
    values = state_values(outcomes, [[steps for _, steps in rollouts]])
    for outcome, own, value in zip(outcomes, advantages, values, strict=True):
        assert own == pytest.approx([outcome - v for v in value[:-1]])


def test_v_is_the_mean_grade_and_what_cannot_be_read_changes_nothing():
    one, two = [[[10, 5, -1], [-1], [0]], [[10]]], [[[0], [-1], [0]], [[10]]]
    assert state_values([1, -1], [one, two]) == [
        [0.0, pytest.approx(0.0), pytest.approx(0.0), 0.0],
        [0.0, 0.0],
    ]
    assert state_values([1, 1], [[[[-1], [7]], []]]) == [[1.0, 1.0, 0.0], [0.0]]


def brier_advantages(grades: list[int], won: bool) -> np.ndarray:
    [[found]] = proper(RewardInputs([1 if won else -1], [], [], [[grades]]))
    return found


@given(st.lists(st.integers(0, 10), min_size=2, max_size=5), st.integers(0, 100))
def test_an_honest_chance_earns_the_most_whatever_the_others_say(grades, percent):
    """In expectation over the outcome, answers rank as they lie near the true chance."""
    q = percent / 100
    expected = q * brier_advantages(grades, True) + (1 - q) * brier_advantages(grades, False)
    error = (np.array(grades) / 10 - q) ** 2
    for i in range(len(grades)):
        for j in range(len(grades)):
            if error[i] < error[j] - 1e-9:
                assert expected[i] > expected[j]


@given(answers, st.booleans())
def test_an_unreadable_answer_earns_the_least(grades, won):
    found = brier_advantages(grades, won)
    assert found.sum() == pytest.approx(0, abs=1e-9)
    if -1 in grades:
        assert found[grades.index(-1)] == found.min()
        readable = [f for f, grade in zip(found, grades, strict=True) if grade not in (-1, 0, 10)]
        assert all(f > found.min() for f in readable)
    if len(set(grades)) == 1:
        assert not found.any()


def test_every_step_of_every_task_trains_a_judge_of_value():
    """Also those of a task that was always lost, which an open window lets in."""
    grades = [[[2, 8, 5]], [[0, 1, -1], [4, 4, 6]]]
    scores = [[[0] * len(step) for step in steps] for steps in grades]
    signals = task_signals([-1, -1], {"value": scores}, settings(), grades={"value": grades})
    assert all(step.any() for steps in signals.judges["value"] for step in steps)


def test_a_judge_without_grades_has_no_proper_reward():
    with pytest.raises(PluginError, match="reward proper needs grades, and there are none"):
        task_signals([1, -1], [[[1]], [[-1]]], settings())


def progress(outcomes: list[int], states: list[list[Any]], **options: Any) -> list[list[float]]:
    scores = {"judge": [[[]] * len(own) for own in states]}
    inputs = AdvantageInputs(outcomes, scores, {"judge": 1.0}, settings(), states=states)
    return [a.tolist() for a in graph(inputs, GraphOptions(**options))]


def test_the_step_towards_a_win_that_another_rollout_found_is_progress():
    """The lost rollout goes where the won one went on from, then turns back; the third is lost at
    once."""
    a, b, c = progress(
        [1, -1, -1], [["hall", "kitchen"], ["hall", "kitchen", "hall"], ["hall"]], episode_weight=0
    )
    assert a[0] == b[0] > 0, "both went to the kitchen, whatever came of it"
    assert a[1] > 0 > b[1], "the one won there, the other left"
    assert b[2] == c[0] < 0, "dead ends"


@given(
    st.lists(
        st.tuples(st.sampled_from([-1, 1]), st.lists(st.integers(0, 5), max_size=8)), min_size=1
    ),
    st.floats(0.05, 0.95),
    st.randoms(),
)
def test_progress_is_compared_with_other_steps_from_the_same_state(rollouts, omega, random):
    outcomes, states = [o for o, _ in rollouts], [steps for _, steps in rollouts]
    found = progress(outcomes, states, omega=omega, episode_weight=0)
    leaving: dict[int, list[float]] = {}
    for own, advantages in zip(states, found, strict=True):
        for state, advantage in zip(own, advantages, strict=True):
            leaving.setdefault(state, []).append(advantage)
    for advantages in leaving.values():
        assert sum(advantages) == pytest.approx(0, abs=1e-6)
    if not any(o == 1 and own for o, own in rollouts):
        assert not any(map(any, found)), "without a win there is no goal to come nearer to"
    order = random.sample(range(len(rollouts)), len(rollouts))
    again = progress([outcomes[i] for i in order], [states[i] for i in order], omega=omega)
    whole = progress(outcomes, states, omega=omega)
    assert again == [pytest.approx(whole[i], abs=1e-9) for i in order]


@given(st.integers(3, 60))
def test_a_detour_far_from_the_win_counts_as_much_as_one_near_it(length):
    """A corridor; the second rollout waits once in every state."""
    corridor = list(range(length))
    waiting = [state for state in corridor for _ in (0, 1)]
    _, found = progress([1, 1], [corridor, waiting], episode_weight=0)
    waits, moves = found[::2], found[1::2]
    assert waits == pytest.approx([waits[0]] * length)
    assert moves == pytest.approx([moves[0]] * length)
    assert moves[0] > 0 > waits[0]


def test_outcomes_are_added_by_their_weight():
    states = [["a"], ["b"]]
    assert progress([1, -1], states) == [[1.0], [-1.0]]
    assert progress([1, -1], states, episode_weight=0.5) == [[0.5], [-0.5]]
