"""Advantages and rewards as functions from a group: those that ship, and what is handed over."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.algorithm.advantages import AdvantageInputs, GaeOptions, gae, leave_one_out
from rlanything.algorithm.feedback import FeedbackSettings, combined_score, mean_score
from rlanything.algorithm.options import Options, needs
from rlanything.algorithm.rewards import RewardInputs
from rlanything.algorithm.signals import task_signals
from rlanything.plugins import PluginError

scores_of_step = st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=4)
trajectory = st.tuples(st.sampled_from([-1, 1]), st.lists(scores_of_step, min_size=1, max_size=5))
group = st.lists(trajectory, min_size=1, max_size=6)
rates = st.floats(0, 1)
OPEN = {"policy_window": (0, 1), "judge_window": (0, 1)}


def settings(**changes: Any) -> FeedbackSettings:
    return FeedbackSettings.model_validate({**OPEN, **changes})


def inputs(rollouts: Sequence[Any], chosen: FeedbackSettings, **others: Any) -> AdvantageInputs:
    outcomes, scores = [o for o, _ in rollouts], [steps for _, steps in rollouts]
    return AdvantageInputs(outcomes, {"judge": scores}, {"judge": 1.0}, chosen, **others)


@given(group)
def test_leave_one_out_of_outcomes_is_rloo(rollouts):
    outcomes = [outcome for outcome, _ in rollouts]
    advantages = leave_one_out(inputs(rollouts, settings(policy_reward="outcome")))
    for g, (outcome, steps) in enumerate(rollouts):
        others = outcomes[:g] + outcomes[g + 1 :]
        expected = outcome - sum(others) / len(others) if others else 0.0
        assert advantages[g] == pytest.approx([expected] * len(steps))
        if not others or set(others) == {outcome}:
            assert not advantages[g].any(), "equal outcomes are no signal, not even rounding"


@given(group)
def test_leave_one_out_leaves_a_steps_own_trajectory_out(rollouts):
    """The baseline of a trajectory does not depend on its own scores; that of the others does."""
    chosen = settings(unreadable="zero")
    before = leave_one_out(inputs(rollouts, chosen))
    (outcome, steps), *others = rollouts
    flipped = [(outcome, [[1] * len(step) for step in steps]), *others]
    after = leave_one_out(inputs(flipped, chosen))
    if others:
        moved = [1 - mean_score(step, "zero") for step in steps]
        assert after[0] - before[0] == pytest.approx(moved)


@given(group, st.sampled_from(["integrated", "outcome", "judge"]), rates, rates, st.randoms())
def test_gae_sums_the_discounted_errors_of_the_values(rollouts, reward, gamma, gae_lambda, random):
    values = [[random.uniform(-1, 1) for _ in [*steps, None]] for _, steps in rollouts]
    chosen = settings(policy_reward=reward, unreadable="zero")
    options = GaeOptions(gamma=gamma, gae_lambda=gae_lambda)
    advantages = gae(inputs(rollouts, chosen, values=values), options)
    for (outcome, steps), value, found in zip(rollouts, values, advantages, strict=True):
        earned = [0.0 if reward == "outcome" else mean_score(step, "zero") for step in steps]
        earned[-1] += 0 if reward == "judge" else outcome
        delta = [r + gamma * value[i + 1] - value[i] for i, r in enumerate(earned)]
        expected = [
            sum((gamma * gae_lambda) ** k * error for k, error in enumerate(delta[i:]))
            for i in range(len(steps))
        ]
        assert found == pytest.approx(expected, abs=1e-9)


@given(group)
def test_gae_with_lambda_one_is_what_was_earned_minus_the_value(rollouts):
    values = [[0.25] * len(steps) + [0.0] for _, steps in rollouts]
    chosen = settings(
        policy_reward="outcome", advantage={"name": "gae", "options": {"gae_lambda": 1}}
    )
    outcomes, scores = [o for o, _ in rollouts], [steps for _, steps in rollouts]
    signals = task_signals(outcomes, scores, chosen, values=values)
    for (outcome, steps), found in zip(rollouts, signals.policy, strict=True):
        assert np.asarray(found) == pytest.approx([outcome - 0.25] * len(steps))


def test_values_that_are_missing_or_too_few_are_not_made_up():
    chosen = settings(advantage="gae")
    with pytest.raises(PluginError, match="advantage gae needs values, and there are none"):
        task_signals([1, -1], [[[1]], [[-1]]], chosen)
    with pytest.raises(ValueError, match=r"needs values of every step: give \[G\]\[steps \+ 1\]"):
        task_signals([1, -1], [[[1]], [[-1]]], chosen, values=[[0.0], [0.0]])


judges = st.dictionaries(st.sampled_from(["one", "two", "three"]), st.floats(0.1, 4), min_size=1)


@given(judges, st.lists(st.lists(st.sampled_from([-1, 0, 1]), max_size=3), min_size=3, max_size=3))
def test_the_scores_of_several_judges_are_weighed_over_those_that_can_be_read(weights, scores):
    given_ = dict(zip(weights, scores, strict=False))
    read = {name: mean_score(own) for name, own in given_.items() if any(own)}
    total = sum(weights[name] for name in read)
    expected = sum(weights[name] * mean for name, mean in read.items()) / total if read else 0.0
    found = combined_score(list(given_.values()), [weights[name] for name in given_])
    assert found == pytest.approx(expected)
    if len(read) == 1:
        assert [found] == list(read.values()), "bit for bit"


@given(group, st.floats(0.1, 4))
def test_judges_that_agree_teach_what_one_of_them_would(rollouts, weight):
    outcomes, scores = [o for o, _ in rollouts], [steps for _, steps in rollouts]
    alone = task_signals(outcomes, scores, settings())
    both = task_signals(
        outcomes, {"one": scores, "two": scores}, settings(), weights={"two": weight}
    )
    for one, two in zip(alone.policy, both.policy, strict=True):
        assert np.asarray(two) == pytest.approx(np.asarray(one), abs=1e-9)
    for judge in ("one", "two"):
        for one, two in zip(alone.judges["judge"], both.judges[judge], strict=True):
            assert [step.tolist() for step in one] == [step.tolist() for step in two]


def test_each_judge_learns_from_its_own_scores_and_the_policy_from_all():
    admirer, critic = [[[1, 1, -1]], [[1, 1, -1]]], [[[1, 1, 1]], [[-1, -1, 1]]]
    heard = task_signals([1, -1], {"admirer": admirer, "critic": critic}, settings())
    for name, own in (("admirer", admirer), ("critic", critic)):
        alone = task_signals([1, -1], own, settings()).judges["judge"]
        assert [[s.tolist() for s in steps] for steps in heard.judges[name]] == [
            [s.tolist() for s in steps] for steps in alone
        ]
    unheard = task_signals(
        [1, -1], {"admirer": admirer, "critic": critic}, settings(advantage="leave_one_out")
    )
    assert unheard.policy[0][0] == pytest.approx(2 + (1 / 3 + 1) / 2 - (1 / 3 - 1 / 3) / 2)


class Fading(Options):
    fading: float = 0.5


def fading(inputs: AdvantageInputs, options: Fading) -> list[list[list[float]]]:
    """An advantage of each token of a response."""
    assert inputs.lengths is not None
    return [
        [[outcome * options.fading**token for token in range(length)] for length in steps]
        for outcome, steps in zip(inputs.outcomes, inputs.lengths, strict=True)
    ]


def test_an_advantage_may_give_each_token_its_own():
    signals = task_signals(
        [1, -1], [[[1], [1]], [[1]]], settings(advantage=fading), lengths=[[1, 3], [2]]
    )
    assert [[step.tolist() for step in steps] for steps in signals.policy] == [
        [[1.0], [1.0, 0.5, 0.25]],
        [[-1.0, -0.5]],
    ]
    own = partial(fading, options=Fading(fading=1.0))
    chosen = settings(advantage=own)
    assert chosen.model_dump()["advantage"]["name"] == f"object({__name__}.fading)"
    signals = task_signals([1, -1], [[[1]], [[1]]], chosen, lengths=[[2], [1]])
    assert [[step.tolist() for step in steps] for steps in signals.policy] == [[[1, 1]], [[-1]]]


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([[1.0, 1.0]], "returned 1 trajectories of 2"),
        ([[1.0, 1.0], [1.0, 2.0]], "each of the 1 steps of trajectory 1"),
        ([[[1.0], [1.0, 1.0]], [[1.0]]], "each of the 2 steps of trajectory 0"),
        ([[1.0, float("nan")], [1.0]], "trajectory 0 is not finite"),
        ([1.0, -1.0], "return a list for each of the trajectories"),
        (None, "return a list for each of the trajectories"),
    ],
)
def test_advantages_that_do_not_fit_the_steps_are_refused(returned, said):
    chosen = settings(advantage=lambda inputs: returned)
    with pytest.raises(PluginError, match=said):
        task_signals([1, -1], [[[1], [1]], [[1]]], chosen, lengths=[[1, 1], [1]])


def test_a_reward_of_ones_own_trains_judges():
    def agreement(inputs: RewardInputs) -> list[list[np.ndarray]]:
        return [
            [outcome * np.asarray(step, dtype=np.float64) for step in steps]
            for outcome, steps in zip(inputs.outcomes, inputs.scores, strict=True)
        ]

    signals = task_signals([1, -1], [[[1, -1]], [[1, 0]]], settings(judge_reward=agreement))
    assert [[s.tolist() for s in steps] for steps in signals.judges["judge"]] == [
        [[1, -1]],
        [[-1, 0]],
    ]
    with pytest.raises(PluginError, match="return an advantage for each judgement"):
        task_signals([1], [[[1, -1]]], settings(judge_reward=lambda inputs: [[[1.0]]]))


def test_a_function_with_options_says_which_and_needs_a_model_for_them():
    def without_model(inputs: AdvantageInputs, options: dict[str, float]) -> Any: ...

    @needs("lengths")
    def unknown_lengths(inputs: AdvantageInputs) -> Any: ...

    with pytest.raises(PluginError, match="annotate its parameter `options` with a pydantic model"):
        task_signals([1, -1], [[[1]], [[1]]], settings(advantage=without_model))
    with pytest.raises(PluginError, match="needs lengths, and there are none"):
        task_signals([1, -1], [[[1]], [[1]]], settings(advantage=unknown_lengths))


def test_a_function_that_takes_more_than_its_inputs_is_refused_before_the_run():
    def three(outcomes: Any, scores: Any, weights: Any) -> Any: ...

    with pytest.raises(
        PluginError, match=r"takes \(outcomes: .*, weights: .*: let it take its inputs"
    ):
        _ = settings(advantage=three).advantage.function
