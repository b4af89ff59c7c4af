import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.evaluation.diagnostics import (
    answer_entropy,
    balanced_process_accuracy,
    calibrate,
    commonest_share,
    diagnose,
    majority,
    mean_score,
    mu,
    outcome_accuracy,
    p_minus,
    p_plus,
    positive_rate,
    precision_bound,
    process_accuracy,
    reward_precision,
    unparsable_rate,
    weight_ratio,
)

SCORES = np.array([[1, 1, 0], [1, -1, -1], [-1, -1, 1], [0, 0, 0]])
OUTCOMES = np.array([1, 1, -1, -1])


@st.composite
def judged(draw):
    m = draw(st.integers(1, 4))
    row = st.lists(st.sampled_from([-1, 0, 1]), min_size=m, max_size=m)
    rows = draw(st.lists(row, min_size=1, max_size=12))
    outcomes = draw(st.lists(st.sampled_from([-1, 1]), min_size=len(rows), max_size=len(rows)))
    return np.array(rows), np.array(outcomes)


def test_p_plus_and_p_minus_count_the_unparsable_among_the_scores():
    assert p_plus(SCORES, OUTCOMES) == pytest.approx(3 / 6)
    assert p_minus(SCORES, OUTCOMES) == pytest.approx(2 / 6)
    assert mu(SCORES, OUTCOMES) == pytest.approx(5 / 6)


def test_reward_precision_counts_strictly_better_pairs_and_a_tie_as_nothing():
    # sums of won steps: 2, -1; of lost steps: -1, 0 -> only 2 > -1 and 2 > 0
    assert reward_precision(SCORES, OUTCOMES) == pytest.approx(2 / 4)


@given(judged())
def test_reward_precision_agrees_with_every_pair_compared(steps):
    scores, outcomes = steps
    won, lost = scores[outcomes == 1].mean(axis=1), scores[outcomes == -1].mean(axis=1)
    pairs = [a > b for a in won for b in lost]
    expected = sum(pairs) / len(pairs) if pairs else None
    assert reward_precision(scores, outcomes) == expected


def test_the_bound_is_theorem_1s_and_means_nothing_unless_mu_exceeds_1():
    assert precision_bound(1.5, 3) == pytest.approx(1 - math.exp(-3 * 0.25 / 4))
    assert precision_bound(1.0, 3) is None
    assert precision_bound(None, 3) is None


@pytest.mark.parametrize("m", [1, 3, 9, 33])
@pytest.mark.parametrize(("plus", "minus"), [(0.7, 0.6), (0.9, 0.9), (0.55, 0.6)])
def test_the_precision_of_simulated_judges_keeps_above_the_bound(m, plus, minus):
    rng, steps = np.random.default_rng(0), 2000
    outcomes = np.repeat([1, -1], steps)
    right = rng.random((2 * steps, m)) < np.where(outcomes == 1, plus, minus)[:, None]
    scores = np.where(right, outcomes[:, None], -outcomes[:, None])
    result = diagnose(scores, outcomes, np.zeros_like(outcomes), weight=1.0)
    assert result.mu == pytest.approx(plus + minus, abs=0.06)
    assert result.reward_precision is not None
    assert result.precision_bound is not None
    assert result.reward_precision > result.precision_bound - 0.02


def test_weight_ratio_at_weight_1_compares_the_shares_of_right_scores():
    # f+ = 2 * (2/3, 1/3), f- = 2 * (2/3, 0)
    assert weight_ratio(SCORES, OUTCOMES, 1.0) == pytest.approx(math.sqrt(5) / 2)


def test_weight_ratio_without_the_judge_compares_the_numbers_of_steps():
    outcomes = np.array([1, -1, -1, -1])
    assert weight_ratio(SCORES, outcomes, 0.0) == pytest.approx(1 / math.sqrt(3))


def test_weight_ratio_vanishes_on_hopeless_tasks_and_is_unbounded_on_trivial_ones():
    assert weight_ratio(SCORES, np.full(4, -1), 1.0) == 0
    assert weight_ratio(SCORES, np.full(4, 1), 1.0) is None


def test_a_tie_or_an_unparsable_step_has_no_majority_and_counts_as_wrong():
    scores = np.array([[1, -1], [0, 0], [1, 0], [-1, -1]])
    assert majority(scores).tolist() == [0, 0, 1, -1]
    assert outcome_accuracy(scores, np.array([1, 1, 1, 1])) == 0.25
    assert outcome_accuracy(scores, np.array([-1, -1, -1, -1])) == 0.25


def test_process_accuracy_looks_at_labelled_steps_only():
    labels = np.array([1, 0, -1, 0])
    assert process_accuracy(SCORES, labels) == 1.0
    assert process_accuracy(SCORES, np.array([1, 1, -1, 0])) == pytest.approx(2 / 3)


def test_a_judge_that_always_approves_is_unmasked_by_balanced_accuracy():
    scores, labels = np.ones((10, 3), dtype=int), np.array([1] * 9 + [-1])
    assert process_accuracy(scores, labels) == pytest.approx(0.9)
    assert balanced_process_accuracy(scores, labels) == pytest.approx(0.5)
    assert positive_rate(scores) == 1.0


def test_balanced_accuracy_needs_both_labels():
    assert balanced_process_accuracy(SCORES, np.array([1, 1, 1, 0])) is None


def test_unparsable_rate_is_a_share_of_judgements():
    assert unparsable_rate(SCORES) == pytest.approx(4 / 12)


def test_the_entropy_of_answers_is_that_of_their_shares():
    assert answer_entropy(np.array([[1, -1], [-1, 1]])) == pytest.approx(np.log(2))
    assert answer_entropy(np.array([[1, -1, 0]])) == pytest.approx(np.log(3))
    assert answer_entropy(np.ones((4, 2), dtype=int)) == 0.0


def test_the_commonest_answer_may_be_that_none_can_be_read():
    assert commonest_share(np.array([[0, 0], [0, 1]])) == 0.75
    assert commonest_share(np.array([[-1, -1], [-1, 1]])) == 0.75


def test_the_mean_score_counts_what_cannot_be_read_as_nothing():
    assert mean_score(np.array([[1, 1, 0, -1]])) == 0.25


@given(judged())
def test_mirroring_outcomes_and_scores_swaps_the_two_sides(steps):
    scores, outcomes = steps
    assert p_plus(scores, outcomes) == p_minus(-scores, -outcomes)
    assert mu(scores, outcomes) == mu(-scores, -outcomes)
    assert outcome_accuracy(scores, outcomes) == outcome_accuracy(-scores, -outcomes)
    assert reward_precision(scores, outcomes) == reward_precision(-scores, -outcomes)


def test_nothing_judged_leaves_everything_undefined():
    result = diagnose([], [], [], weight=1.0)
    for name in result.__slots__:
        assert getattr(result, name) is None, name


def test_diagnose_gathers_the_single_figures():
    labels = np.array([1, -1, -1, 1])
    result = diagnose(SCORES, OUTCOMES, labels, weight=0.5)
    assert result.p_plus == p_plus(SCORES, OUTCOMES)
    assert result.weight_ratio == weight_ratio(SCORES, OUTCOMES, 0.5)
    assert result.process_accuracy == 0.75
    assert result.balanced_process_accuracy == pytest.approx((1 / 2 + 1) / 2)
    assert result.precision_bound is None


@given(st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=1, max_size=30))
def test_the_brier_score_is_the_sum_of_its_parts(answers):
    count, won = np.zeros(11), np.zeros(11)
    for grade, win in answers:
        count[grade] += 1
        won[grade] += win
    found = calibrate(won, count)
    assert found is not None
    brier = sum((grade / 10 - win) ** 2 for grade, win in answers) / len(answers)
    assert found.brier == pytest.approx(brier)
    assert found.brier == pytest.approx(found.reliability - found.resolution + found.uncertainty)
    share = sum(win for _, win in answers) / len(answers)
    assert found.uncertainty == pytest.approx(share * (1 - share))


def test_a_judge_of_value_is_calibrated_or_tells_states_apart():
    """Says 2 and 8, is right about both; says 5 of everything."""
    right = calibrate(
        *np.array([[0, 0, 2, 0, 0, 0, 0, 0, 8, 0, 0], [0, 0, 10, 0, 0, 0, 0, 0, 10, 0, 0]])
    )
    blind = calibrate([0] * 5 + [10] + [0] * 5, [0] * 5 + [20] + [0] * 5)
    assert right is not None
    assert blind is not None
    assert (right.reliability, right.resolution) == (pytest.approx(0), pytest.approx(0.09))
    assert (blind.reliability, blind.resolution) == (0, 0)
    assert right.uncertainty == blind.uncertainty == 0.25
    assert calibrate([0] * 11, [0] * 11) is None


@pytest.mark.parametrize(
    ("scores", "outcomes", "labels", "message"),
    [
        ([1, 1], [1, 1], [0, 0], r"\[steps, m\]"),
        ([[], []], [1, 1], [0, 0], "m > 0"),
        ([[1], [1]], [1], [0, 0], r"outcomes \(1,\)"),
        ([[2]], [1], [0], "scores must be"),
        ([[1]], [0], [0], "outcomes must be"),
        ([[1]], [1], [3], "labels must be"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(scores, outcomes, labels, message):
    with pytest.raises(ValueError, match=message):
        diagnose(scores, outcomes, labels, weight=1.0)
