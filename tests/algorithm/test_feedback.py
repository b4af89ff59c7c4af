import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.algorithm import advantages as estimators
from rlanything.algorithm.advantages import AdvantageInputs
from rlanything.algorithm.feedback import (
    FeedbackSettings,
    consistency_feedback,
    integrated_feedback,
    mean_score,
    moments,
    policy_feedback,
    standardize,
)
from rlanything.algorithm.generated_tests import unit_test_signals
from rlanything.algorithm.rewards import judge_advantages, outcome_balance
from rlanything.algorithm.signals import in_window, task_accuracy, task_signals


def paper(normalization: str = "step", balance: str = "none", **changes: Any) -> FeedbackSettings:
    """Settings of the paper, where the defaults differ from it."""
    options = {"normalization": normalization, "balance": balance}
    return FeedbackSettings.model_validate(
        {"unreadable": "zero", "judge_reward": {"options": options}, **changes}
    )


@dataclass(frozen=True)
class Given(AdvantageInputs):
    """A group whose feedback R_i, [G] arrays [steps], is given."""

    R: Sequence[np.ndarray] = ()

    def feedback(self, compared):
        return list(self.R)


def policy_advantages(feedback, comparison="step", states=None):
    scores = {"judge": [[[]] * len(steps) for steps in feedback]}
    outcomes = [1] * len(feedback)
    given = Given(outcomes, scores, {}, FeedbackSettings(), states=states, R=feedback)
    return getattr(estimators, comparison)(given)


EVERYTHING = paper(policy_window=(0, 1), judge_window=(0, 1))

step_scores = st.lists(st.sampled_from([-1, 0, 1]), max_size=5)
trajectory = st.tuples(st.sampled_from([-1, 1]), st.lists(step_scores, max_size=6))
group = st.lists(trajectory, min_size=1, max_size=8)
weights = st.sampled_from([0.0, 0.25, 1.0, 1.7, 4.0])


def textbook(values: list[float], value: float) -> float:
    """Standardization by the standard library's exact statistics, equal values aside."""
    if max(values) - min(values) < 1e-9 or abs(value - fmean(values)) < 1e-9:
        return 0.0
    return (value - fmean(values)) / pstdev(values)


def test_integrated_feedback_is_the_outcome_plus_the_weighted_mean_score():
    means = [mean_score(step) for step in ([1, 1, 1], [1, 1, -1], [-1, -1, -1])]
    assert integrated_feedback(1, means, 1.0) == pytest.approx([2, 4 / 3, 0])
    assert integrated_feedback(-1, means, 0.25) == pytest.approx([-0.75, -11 / 12, -1.25])


def test_an_unparsable_score_adds_nothing_and_still_counts_in_m_as_in_the_paper():
    assert mean_score([1, 0, 1, 0], "zero") == 0.5
    assert mean_score([0, 0], "zero") == 0.0


def test_a_missing_score_does_not_count_in_the_mean_of_its_step():
    assert mean_score([1, 0, 1, 0]) == 1.0
    assert mean_score([1, 0, -1]) == 0.0
    assert mean_score([0, 0]) == 0.0


@pytest.mark.parametrize("comparison", ["step", "trajectory"])
def test_an_episode_is_not_punished_for_judgements_that_could_not_be_read(comparison):
    # Lost and unread, lost and liked, lost and disliked, won and liked.
    outcomes, scores = [-1, -1, -1, 1], [[[0, 0]], [[1, 1]], [[-1, -1]], [[1, 1]]]
    settings = FeedbackSettings.model_validate({"advantage": comparison})
    unread, liked, disliked, won = (a[0] for a in task_signals(outcomes, scores, settings).policy)
    assert disliked < unread < liked < won
    by_the_paper = paper(advantage=comparison)
    partly = [[[1, 0]], [[1, 1]], [[-1, -1]], [[1, 1]]]
    policy = task_signals(outcomes, partly, settings).policy
    assert policy[0] == policy[1]
    policy = task_signals(outcomes, partly, by_the_paper).policy
    assert policy[0] < policy[1]


def test_where_no_judgement_could_be_read_outcomes_alone_teach_the_policy():
    outcomes, unread = [1, -1, -1], [[[0, 0], [0, 0]]] * 3
    settings = FeedbackSettings()
    unjudged = task_signals(outcomes, [[[], []]] * 3, settings).policy
    found = task_signals(outcomes, unread, settings).policy
    assert [list(steps) for steps in found] == [list(steps) for steps in unjudged]


def test_a_step_that_no_other_can_be_read_at_is_compared_by_its_outcome():
    # Step 1 of both lost episodes was not read; a step that one of them alone reached has no other.
    scores = [[[1], [0]], [[1], [0], [0]], [[1], [1]]]
    signals = task_signals([-1, -1, 1], scores, FeedbackSettings())
    assert signals.policy[0][1] == signals.policy[1][1] < 0 < signals.policy[2][1]
    assert signals.policy[1][2] == 0.0


def test_a_step_nobody_judged_has_the_outcome_as_its_feedback():
    assert integrated_feedback(-1, [mean_score([])], 1.0) == pytest.approx([-1])


def test_consistency_feedback_multiplies_by_the_score_and_punishes_the_unparsable():
    assert consistency_feedback(4 / 3, [1, -1, 0]) == pytest.approx([4 / 3, -4 / 3, -2])


def test_policy_advantage_compares_only_trajectories_that_reached_the_step():
    advantages = policy_advantages([np.array([2.0, 1.0, 5.0]), np.array([0.0, -1.0]), np.zeros(0)])
    assert advantages[0] == pytest.approx([1, 1, 0])
    assert advantages[1] == pytest.approx([-1, -1])
    assert advantages[2].shape == (0,)


def test_compared_over_whole_trajectories_every_step_of_the_task_counts():
    advantages = policy_advantages([np.array([2.0, 0.0]), np.array([1.0])], "trajectory")
    deviation = math.sqrt(2 / 3)
    assert advantages[0] == pytest.approx([1 / deviation, -1 / deviation])
    assert advantages[1].tolist() == [0.0]


def test_compared_by_state_steps_meet_wherever_they_are_in_their_trajectories():
    feedback = [np.array([2.0, 1.0, 5.0]), np.array([0.0, 3.0])]
    states = [["start", "hall", "attic"], ["start", "start"]]
    advantages = policy_advantages(feedback, "state", states)
    deviation = pstdev([2.0, 0.0, 3.0])
    assert advantages[0] == pytest.approx([(2 - 5 / 3) / deviation, 0, 0])
    assert advantages[1] == pytest.approx([(0 - 5 / 3) / deviation, (3 - 5 / 3) / deviation])


@pytest.mark.parametrize("states", [None, [["a"]], [["a", "b"], ["a", "b"]]])
def test_states_that_are_missing_are_not_made_up(states):
    scores = [[[1], [1]], [[-1]]]
    with pytest.raises(ValueError, match="advantage state needs states"):
        task_signals([1, -1], scores, paper(advantage="state"), states=states)


values = st.floats(-4, 4).map(lambda value: round(value, 3))
stated = st.lists(
    st.lists(st.tuples(values, st.sampled_from("abc")), max_size=6), min_size=1, max_size=8
)


def groups_of(rollouts, comparison):
    """What every step is compared with, by the definition: values by group."""
    found = defaultdict(list)
    for steps in rollouts:
        for i, (value, state) in enumerate(steps):
            found[{"step": i, "trajectory": 0, "state": state}[comparison]].append(value)
    return found


def compared(rollouts, comparison):
    feedback = [np.array([value for value, _ in steps]) for steps in rollouts]
    states = [[state for _, state in steps] for steps in rollouts]
    return policy_advantages(feedback, comparison, states)


comparisons = st.sampled_from(["step", "trajectory", "state"])


@given(stated, comparisons)
def test_every_comparison_standardizes_by_the_textbook_over_what_it_names(rollouts, comparison):
    groups = groups_of(rollouts, comparison)
    for steps, advantages in zip(rollouts, compared(rollouts, comparison), strict=True):
        assert advantages.shape == (len(steps),)
        for i, (value, state) in enumerate(steps):
            over = groups[{"step": i, "trajectory": 0, "state": state}[comparison]]
            assert advantages[i] == pytest.approx(textbook(over, value), abs=1e-6)


@given(stated, comparisons, st.randoms())
def test_the_order_of_the_rollouts_changes_no_comparison(rollouts, comparison, random):
    order = list(range(len(rollouts)))
    random.shuffle(order)
    plain = compared(rollouts, comparison)
    mixed = compared([rollouts[i] for i in order], comparison)
    for place, i in enumerate(order):
        assert mixed[place] == pytest.approx(plain[i], abs=1e-9)


@given(stated)
def test_where_every_step_has_a_state_of_its_own_nothing_is_compared(rollouts):
    feedback = [np.array([value for value, _ in steps]) for steps in rollouts]
    states = [[(g, i) for i in range(len(steps))] for g, steps in enumerate(rollouts)]
    assert not any(each.any() for each in policy_advantages(feedback, "state", states))


@given(stated)
def test_states_that_are_step_indices_compare_as_the_paper_does(rollouts):
    feedback = [np.array([value for value, _ in steps]) for steps in rollouts]
    states = [range(len(steps)) for steps in rollouts]
    by_state = policy_advantages(feedback, "state", states)
    for one, two in zip(by_state, policy_advantages(feedback), strict=True):
        assert one == pytest.approx(two, abs=1e-9)


def test_the_comparison_asked_for_is_the_one_that_trains():
    scores = [[[1], [1]], [[-1]]]
    states = [["a", "b"], ["b"]]
    signals = [
        task_signals(
            [1, -1],
            scores,
            paper(policy_window=(0, 1), advantage=comparison),
            states=states,
        ).policy
        for comparison in ("step", "trajectory", "state")
    ]
    assert [np.asarray(each).tolist() for each in signals[0]] == [[1, 0], [-1]]
    assert signals[1][0] == pytest.approx([math.sqrt(0.5)] * 2)
    assert [np.asarray(each).tolist() for each in signals[2]] == [[0, 1], [-1]]


def test_a_lone_trajectory_teaches_the_policy_nothing():
    signals = task_signals([1], [[[1, 1, -1], [1, -1, -1]]], EVERYTHING)
    assert np.asarray(signals.policy[0]).tolist() == [0.0, 0.0]
    assert np.any(signals.judges["judge"][0][0] != 0)


@given(st.floats(-1e6, 1e6), st.integers(1, 40))
def test_equal_values_give_exactly_zero(value, count):
    values = np.full(count, value)
    assert not standardize(values, moments(values)).any()
    assert not any(a.any() for a in policy_advantages([np.array([value])] * count))


def test_feedback_that_is_equal_but_for_rounding_gives_exactly_zero():
    values = np.array([0.1 + 0.2, 0.3, 0.3])
    assert values.max() != values.min()
    assert not standardize(values, moments(values)).any()


def test_a_step_on_the_mean_gets_exactly_zero_and_does_not_train():
    values = np.array([1 / 3, 2 / 3, 1.0])
    advantages = standardize(values, moments(values))
    assert advantages[1] == 0.0
    assert advantages[2] == pytest.approx(math.sqrt(1.5))


def test_judge_advantage_prefers_the_scores_that_agree_with_the_outcome():
    settings = paper(policy_window=(0, 1))
    signals = task_signals([1, -1], [[[1, 1, -1]], [[1, -1, -1]]], settings)
    root = math.sqrt(2)
    assert signals.judges["judge"][0][0] == pytest.approx([root / 2, root / 2, -root])
    assert signals.judges["judge"][1][0] == pytest.approx([-root, root / 2, root / 2])


def test_judgements_that_all_agree_teach_the_judge_nothing_unless_it_is_compared_to_the_task():
    scores = [[[1, 1, 1]], [[1, 1, 1]]]
    by_step = task_signals([1, -1], scores, EVERYTHING)
    by_task = task_signals(
        [1, -1],
        scores,
        paper(judge_window=(0, 1), normalization="task"),
    )
    assert not any(step.any() for steps in by_step.judges["judge"] for step in steps)
    assert by_task.judges["judge"][0][0] == pytest.approx([1, 1, 1])
    assert by_task.judges["judge"][1][0] == pytest.approx([-1, -1, -1])


@given(group)
def test_balanced_steps_of_won_and_lost_episodes_weigh_the_same(rollouts):
    outcomes, scores = [o for o, _ in rollouts], [s for _, s in rollouts]
    plain = task_signals(outcomes, scores, paper(judge_window=(0, 1)))
    balanced = task_signals(outcomes, scores, paper(judge_window=(0, 1), balance="outcome"))
    lengths = {
        o: sum(len(s) for s, p in zip(scores, outcomes, strict=True) if p == o) for o in (1, -1)
    }
    total = sum(lengths.values())
    for outcome, before, after in zip(
        outcomes, plain.judges["judge"], balanced.judges["judge"], strict=True
    ):
        for one, two in zip(before, after, strict=True):
            assert two * total == pytest.approx(one * 2 * lengths[-outcome])
    weights = outcome_balance(lengths[1], lengths[-1])
    assert weights[1] * lengths[1] == pytest.approx(weights[-1] * lengths[-1])


def test_the_policy_may_learn_from_the_outcome_or_from_the_judge_alone():
    settings = [
        paper(policy_lambda=0.5, policy_reward=reward)
        for reward in ("integrated", "outcome", "judge")
    ]
    found = [policy_feedback(-1, [1 / 3, -1], each) for each in settings]
    assert found[0] == pytest.approx([-5 / 6, -1.5])
    assert found[1] == pytest.approx([-1, -1])
    assert found[2] == pytest.approx([1 / 6, -0.5])
    measured = [policy_feedback(-1, [1 / 3, -1], each, 0.75) for each in settings]
    assert [each.tolist() for each in measured] == [
        found[0].tolist(),
        [0.75, 0.75],
        found[2].tolist(),
    ]


@given(group, weights)
def test_without_the_outcome_the_policy_learns_the_same_whoever_won(rollouts, weight):
    settings = paper(policy_lambda=weight, policy_reward="judge", policy_window=(0, 1))
    scores = [steps for _, steps in rollouts]
    outcomes = [outcome for outcome, _ in rollouts]
    one = task_signals(outcomes, scores, settings)
    other = task_signals([-outcome for outcome in outcomes], scores, settings)
    for a, b in zip(one.policy, other.policy, strict=True):
        assert np.array_equal(a, b)


def test_where_an_episode_broke_off_without_a_reward_all_of_its_task_learn_from_outcomes():
    settings = paper(policy_reward="outcome", policy_window=(0, 1))

    def learned(*rewards: float | None):
        scores = [[[1]]] * 4
        return [*task_signals([1, 1, -1, -1], scores, settings, rewards).policy]

    by_outcome = learned(None, None, None, None)
    assert by_outcome == learned(1.0, 1.0, -1.0, -1.0)
    assert learned(-110.0, -120.0, None, None) == learned(1.0, 1.0, None, None) == by_outcome
    assert learned(1.0, 0.5, 0.0, 0.0) != by_outcome


def test_the_share_of_generated_tests_passed_is_what_a_program_learns_from_without_its_outcome():
    scores = [[1, 1, 1, -1], [1, 1, -1, -1], [-1, -1, -1, -1]]
    settings = paper(policy_reward="judge", policy_window=(0, 1))
    found = unit_test_signals([-1, 1, -1], scores, settings, [0.0, 1.0, 0.5])
    shares = [0.75, 0.5, 0.0]
    expected = [textbook(shares, share) for share in shares]
    assert [float(steps[0]) for steps in found.policy] == pytest.approx(expected)


def test_the_judges_weight_leaves_the_policy_alone():
    scores = [[[1, 1, -1, 0]], [[-1, -1, 1, 0]]]
    one = task_signals([1, -1], scores, paper(judge_lambda=1.0))
    four = task_signals([1, -1], scores, paper(judge_lambda=4.0))
    assert np.array_equal(one.policy[0], four.policy[0])
    assert not np.allclose(one.judges["judge"][0][0], four.judges["judge"][0][0])


@pytest.mark.parametrize(("normalization", "matters"), [("step", False), ("task", True)])
def test_up_to_one_the_judges_weight_matters_only_over_a_task(normalization, matters):
    scores = [[[1, 1, -1], [0, 1, -1]], [[-1, -1, 1], [1, 0, 1]]]

    def learned(weight):
        settings = paper(judge_lambda=weight, normalization=normalization)
        return np.concatenate(list(chain(*task_signals([1, -1], scores, settings).judges["judge"])))

    assert learned(1.0).any()
    for weight in (0.0, 0.25, 0.5):
        assert np.allclose(learned(weight), learned(1.0), rtol=1e-12) != matters


@pytest.mark.parametrize(
    ("wins", "policy_trains", "judge_trains"),
    [(0, False, False), (1, True, False), (2, True, True), (6, True, True), (7, True, False)],
)
def test_the_windows_decide_who_trains(wins, policy_trains, judge_trains):
    outcomes = [1] * wins + [-1] * (8 - wins)
    scores = [[[1, -1, 1]]] * 4 + [[[1, -1, -1]]] * 4
    signals = task_signals(outcomes, scores, paper())
    assert signals.accuracy == wins / 8
    assert any(np.any(steps) for steps in signals.policy) == policy_trains
    assert any(step.any() for steps in signals.judges["judge"] for step in steps) == judge_trains


def test_both_ends_of_a_window_train():
    for wins in (1, 4):
        assert in_window(task_accuracy([1] * wins + [-1] * (5 - wins)), (0.2, 0.8))
    assert not in_window(float(np.nextafter(0.8, 1)), (0.2, 0.8))


@given(group, weights)
def test_policy_advantages_agree_with_the_textbook(rollouts, weight):
    outcomes = [outcome for outcome, _ in rollouts]
    scores = [steps for _, steps in rollouts]
    settings = paper(policy_lambda=weight, policy_window=(0, 1))
    signals = task_signals(outcomes, scores, settings)
    feedback = [
        [float(o + Fraction(weight) * Fraction(sum(s), max(len(s), 1))) for s in steps]
        for o, steps in rollouts
    ]
    for g, steps in enumerate(feedback):
        assert np.shape(signals.policy[g]) == (len(steps),)
        for i, value in enumerate(steps):
            column = [other[i] for other in feedback if len(other) > i]
            assert signals.policy[g][i] == pytest.approx(textbook(column, value), abs=1e-12)


@given(group, weights, st.sampled_from(["step", "task"]))
def test_judge_advantages_agree_with_the_textbook(rollouts, weight, normalization):
    settings = paper(judge_lambda=weight, judge_window=(0, 1), normalization=normalization)
    signals = task_signals([o for o, _ in rollouts], [s for _, s in rollouts], settings)
    values = [
        [[(o + weight * sum(step) / len(step)) * s if s else -2.0 for s in step] for step in steps]
        for o, steps in rollouts
    ]
    every = [value for steps in values for step in steps for value in step]
    for g, steps in enumerate(values):
        for i, step in enumerate(steps):
            over = step if normalization == "step" else every
            expected = [textbook(over, value) for value in step]
            assert signals.judges["judge"][g][i] == pytest.approx(expected, abs=1e-9)


@given(group)
def test_at_every_step_index_the_policy_advantages_cancel_and_have_unit_variance(rollouts):
    signals = task_signals([o for o, _ in rollouts], [s for _, s in rollouts], EVERYTHING)
    for i in range(max(len(steps) for _, steps in rollouts)):
        column = np.array([a[i] for a in signals.policy if len(a) > i])
        assert column.sum() == pytest.approx(0, abs=1e-9)
        assert not column.any() or np.mean(column**2) == pytest.approx(1)


def test_matrices_and_nested_lists_of_scores_mean_the_same():
    nested = [[[1, -1, 0], [1, 1, 1]], [[-1, -1, 1], [0, 0, 1]]]
    arrays = [np.array(steps) for steps in nested]
    one = task_signals([1, -1], nested, EVERYTHING)
    two = task_signals(np.array([1, -1]), arrays, EVERYTHING)
    for a, b in zip(one.policy, two.policy, strict=True):
        assert np.array_equal(a, b)
    for a, b in zip(one.judges["judge"], two.judges["judge"], strict=True):
        assert np.array_equal(np.array(a), np.array(b))


@pytest.mark.parametrize(
    ("outcomes", "scores", "place"),
    [
        ([1], [], "1 outcomes"),
        ([], [], "without rollouts"),
        ([1, 0], [[], []], "trajectory 1: outcome 0"),
        ([1, -1], [[[1]], [[1], [2]]], "trajectory 1, step 1"),
        ([1, -1], [[1], [1]], r"trajectory 0: give \[steps\]\[m\]"),
    ],
)
def test_impossible_input_is_refused_with_its_place(outcomes, scores, place):
    with pytest.raises(ValueError, match=place):
        task_signals(outcomes, scores, EVERYTHING)


def test_a_reward_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match=r"a reward is a finite number or None: \[0\.5, nan\]"):
        task_signals([1, -1], [[[1]], [[1]]], EVERYTHING, rewards=[0.5, math.nan])


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy_lambda": math.nan},
        {"judge_lambda": -1.0},
        {"policy_window": (0.8, 0.2)},
        {"judge_window": (0.0, 1.5)},
        {"policy_reward": "score"},
        {"unreadable": "never"},
        {"advantage": "group"},
        {"judge_reward": {"options": {"normalization": "steps"}}},
        {"judge_reward": {"options": {"balance": "won"}}},
    ],
)
def test_a_setting_without_meaning_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FeedbackSettings.model_validate(wrong)


def test_no_judgements_at_all_standardize_to_nothing():
    assert judge_advantages(np.zeros(0), np.array([0]), "task").shape == (0,)
    signals = task_signals(
        [1, -1], [[[]], []], paper("task", policy_window=(0, 1), judge_window=(0, 1))
    )
    assert signals.judges["judge"][0][0].shape == (0,)
    assert signals.judges["judge"][1] == ()
