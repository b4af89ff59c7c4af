"""A judge that writes tests: what they earn, whom they score, and that each is kept once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.scripted import Counting, ScriptedEngine
from helpers.tiny import tiny_model
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.algorithm.generated_tests import unit_test_feedback, unit_test_signals
from rlanything.engines.base import Sampling
from rlanything.records import Completion, Message, Messages, Step, Task, Trajectory
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.judges.unit_test import UnitTestJudge

WIDE = FeedbackSettings(policy_window=(0, 1), judge_window=(0, 1))


class Compared(Counting):
    """A test is a number; a response passes it that is at least as large."""

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        return (Message("user", f"Write a test: {task.instruction}"),)

    def run_tests(
        self, task: Task, responses: Sequence[str], tests: Sequence[str]
    ) -> list[list[int]]:
        def score(response: str, test: str) -> int:
            return 0 if not test.isdigit() else 1 if int(response) >= int(test) else -1

        return [[score(response, test) for test in tests] for response in responses]


def wrote(name: str, task: str, response: str, outcome: int, reward: float) -> Trajectory:
    step = Step("q", Completion.unsampled(response), response, True, "done")
    return Trajectory(name, Task(task, f"task {task}"), (step,), outcome, reward)


def judge_that_says(*tests: str) -> tuple[UnitTestJudge, ScriptedEngine]:
    model = tiny_model(0)
    engine = ScriptedEngine(model, lambda prompt, seed: tests[seed % len(tests)])
    return UnitTestJudge(LocalChatModel(model, engine), Compared(), Sampling(1.0, 8), 4), engine


@pytest.mark.parametrize(
    ("scores", "earned"),
    [
        ([1, 1, -1, -1], 1.0),  # all correct pass, no wrong one does
        ([1, 1, 1, -1], 0.5),
        ([1, 1, 1, 1], 0.0),  # it tells nothing apart
        ([1, -1, -1, -1], 0.0),  # a correct program fails it
        ([-1, -1, 1, 1], -1.0),
        ([0, 0, 0, 0], -1.0),  # nobody can read it
        ([1, 0, -1, -1], 1.0),  # where the sandbox failed, nothing is known
        ([1, 1, 1, 0], 0.0),
        ([0, 0, 1, -1], 0.0),
        ([1, 1, 0, 0], 1.0),
    ],
)
def test_a_generated_test_earns_what_it_tells_apart(scores: list[int], earned: float) -> None:
    assert unit_test_feedback([1, 1, -1, -1], np.array(scores)[:, None]).tolist() == [earned]


def test_without_wrong_programs_a_test_earns_plus_or_minus_one_or_nothing() -> None:
    assert unit_test_feedback([1, 1], [[1, 1], [1, -1]]).tolist() == [1.0, -1.0]


def test_without_wrong_programs_a_broken_test_earns_no_more_than_an_unreadable_one() -> None:
    always = FeedbackSettings(judge_window=(0, 1))
    right, broken, unreadable = [1, 1], [1, -1], [0, 0]
    table = np.column_stack([right, broken, unreadable])
    advantages = unit_test_signals([1, 1], table, always).judges["judge"][0][0]
    assert advantages == pytest.approx([2**0.5, -(0.5**0.5), -(0.5**0.5)])


@given(
    outcomes=st.lists(st.sampled_from([-1, 1]), min_size=1, max_size=8),
    tests=st.integers(1, 6),
    data=st.data(),
)
def test_no_unreadable_or_wrong_test_earns_more_than_a_readable_correct_one(
    outcomes: list[int], tests: int, data: st.DataObject
) -> None:
    column = st.one_of(  # tests that cannot be read; those that can, the sandbox failing at times
        st.just([0] * len(outcomes)),
        st.lists(
            st.sampled_from([-1, 1]) | st.sampled_from([-1, 0, 1]),
            min_size=len(outcomes),
            max_size=len(outcomes),
        ),
    )
    table = np.array(data.draw(st.lists(column, min_size=tests, max_size=tests))).T
    earned, correct = unit_test_feedback(outcomes, table), table[np.array(outcomes) == 1]
    assert (np.abs(earned) <= 1).all()
    if not len(correct):
        assert not earned.any()
        return
    right, unreadable = (correct == 1).all(axis=0), (table == 0).all(axis=0)
    best_of_the_wrong = max(earned[unreadable | (correct == -1).any(axis=0)], default=-1.0)
    assert all(earned[right] >= best_of_the_wrong)
    assert (earned[unreadable] == -1).all()


def test_without_correct_programs_no_test_earns_anything() -> None:
    assert unit_test_feedback([-1, -1], [[1, 0], [-1, 0]]).tolist() == [0.0, 0.0]


def test_what_a_test_earns_is_p_c_plus_p_d_minus_one() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        outcomes = np.array([1, -1, *rng.choice([1, -1], 6)])
        scores = rng.choice([1, -1], (8, 1))
        p_c = float((scores[outcomes == 1] == 1).all())
        p_d = float((scores[outcomes == -1] == -1).mean())
        assert unit_test_feedback(outcomes, scores)[0] == pytest.approx(p_c + p_d - 1)


def test_the_judges_advantages_stand_with_the_first_program_alone() -> None:
    signals = unit_test_signals([1, -1, -1], [[1, 1], [-1, 1], [-1, 1]], WIDE)
    assert [each[0].tolist() for each in signals.judges["judge"]] == [[1.0, -1.0], [0, 0], [0, 0]]
    narrow = FeedbackSettings(judge_window=(0.4, 0.6))
    outside = unit_test_signals([1, -1, -1], [[1, 1], [-1, 1], [-1, 1]], narrow)
    assert not any(each[0].any() for each in outside.judges["judge"])


def test_the_policy_learns_from_the_share_of_tests_or_from_generated_ones() -> None:
    outcomes, scores, rewards = [1, -1, -1], [[1, 1], [1, -1], [-1, -1]], [1.0, 0.5, 0.75]
    fraction = FeedbackSettings(policy_reward="outcome", policy_window=(0, 1))
    found = [
        float(each[0]) for each in unit_test_signals(outcomes, scores, fraction, rewards).policy
    ]
    expected = (np.array(rewards) - 0.75) / np.std(rewards)
    assert found == pytest.approx(expected.tolist())
    integrated = unit_test_signals(outcomes, scores, WIDE, rewards).policy
    raw = np.array([1 + 1, -1 + 0, -1 - 1])
    assert [float(each[0]) for each in integrated] == pytest.approx(
        ((raw - raw.mean()) / raw.std()).tolist()
    )


def test_a_task_has_one_set_of_tests_that_scores_all_its_programs() -> None:
    judge, engine = judge_that_says("3", "7", "no number")
    trajectories = [
        wrote("a/0", "a", "5", -1, 0.5),
        wrote("b/0", "b", "9", 1, 1.0),
        wrote("a/1", "a", "8", 1, 1.0),
    ]
    done: list[int] = []
    first, other, second = judge.judge(trajectories, 0, done.append)
    assert len(engine.prompts) == 2
    assert sum(done) == 12
    assert [j.completion for j in first.judgements[0]] == [
        j.completion for j in second.judgements[0]
    ]
    for judged, answer in ((first, 5), (second, 8), (other, 9)):
        for judgement in judged.judgements[0]:
            text = judgement.completion.text
            expected = 0 if text == "no number" else 1 if answer >= int(text) else -1
            assert judgement.score == expected


def test_ut_and_detect_are_shares_of_the_tests_of_solved_tasks() -> None:
    judge, _ = judge_that_says("3", "7", "6")
    solved = [wrote("a/0", "a", "5", -1, 0), wrote("a/1", "a", "6", 1, 1)]
    unsolved = [wrote("b/0", "b", "1", -1, 0)]
    judged = judge.judge([*solved, *unsolved], 0)
    tests = [each.completion.text for each in judged[0].judgements[0]]
    passed, detected = (
        sum(map(each, map(int, tests))) for each in (lambda t: t <= 6, lambda t: t == 6)
    )
    assert judge.counts(judged) == {"a": {"UT": (passed, 4), "Detect": (detected, 4)}}
    assert judge.counts(judged[2:]) == {}
    assert judge.counts(judged[1:]) == {"a": {"UT": (passed, 4)}}


def test_a_test_is_not_counted_where_the_sandbox_failed_for_some_program() -> None:
    judge, _ = judge_that_says("3", "7", "6")
    judged = judge.judge([wrote("a/0", "a", "5", -1, 0), wrote("a/1", "a", "6", 1, 1)], 0)
    whole = judge.counts(judged)["a"]["UT"]
    for place, score in enumerate(judged[1].scores[0]):
        row = list(judged[1].judgements[0])
        row[place] = replace(row[place], score=0)
        known = judge.counts([judged[0], replace(judged[1], judgements=(tuple(row),))])
        assert known["a"]["UT"] == (whole[0] - (score == 1), 3)


def test_a_task_that_no_test_says_anything_of_has_no_judgements_and_counts_for_nothing() -> None:
    class Untestable(Compared):
        def run_tests(
            self, task: Task, responses: Sequence[str], tests: Sequence[str]
        ) -> list[list[int]]:
            return [[] for _ in responses]

    model = tiny_model(0)
    engine = ScriptedEngine(model, lambda prompt, seed: "3")
    judge = UnitTestJudge(LocalChatModel(model, engine), Untestable(), Sampling(1.0, 8), 4)
    judged = judge.judge([wrote("a/0", "a", "5", -1, 0.0), wrote("a/1", "a", "6", 1, 1.0)], 0)
    assert [each.judgements for each in judged] == [((),), ((),)]
    assert judge.counts(judged) == {}
    signals = judge.signals(judged, WIDE.model_copy(update={"policy_reward": "outcome"}))
    assert [np.asarray(each).tolist() for each in signals.policy] == [[-1.0], [1.0]]
    assert not any(len(step) for program in signals.judges["judge"] for step in program)
