"""The judge's exam: the same episodes each time, intervals over episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from rich.console import Console

from rlanything.domains.base import Domain
from rlanything.evaluation.counts import gain, pooled
from rlanything.evaluation.judge_eval import AGREEING, BAD, GOOD, JudgeExam
from rlanything.evaluation.labels import Labeller, oracle_labels
from rlanything.progress import View
from rlanything.records import (
    Completion,
    JudgedTrajectory,
    Judgement,
    Step,
    Task,
    Trajectory,
)
from rlanything.roles.chat_model import Speaker
from rlanything.roles.judges.llm import Judge, StepCritic

EMPTY = Completion.unsampled("")


class LabelledDomain:
    """Every other step is good."""

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int]:
        del task
        return [1 if i % 2 == 0 else -1 for i in range(len(steps))]


class ScriptedJudge(StepCritic):
    """Right on the first `right` steps of every episode, wrong after them."""

    samples = 3

    def __init__(self, right: int) -> None:
        self.right = right

    def judge(
        self, trajectories: Sequence[Trajectory], seed: int, progress: Any
    ) -> list[JudgedTrajectory]:
        del seed, progress
        labels = [1, -1] * 10
        return [
            JudgedTrajectory(
                each,
                tuple(
                    (Judgement(EMPTY, labels[i] if i < self.right else -labels[i]),) * 3
                    for i in range(len(each.steps))
                ),
            )
            for each in trajectories
        ]


def episodes(count: int, steps: int) -> list[Trajectory]:
    step = Step("", EMPTY, "go", True, "")
    return [Trajectory(str(i), Task(str(i), ""), (step,) * steps, 1) for i in range(count)]


def exam_of(domain: object, played: list[Trajectory]) -> JudgeExam:
    return JudgeExam(played, oracle_labels(cast(Domain, domain), played))


def sit(exam: JudgeExam, right: int) -> Any:
    return exam.sit(cast(Judge, ScriptedJudge(right)), 1.0, 0, View(Console(quiet=True)))


def test_a_label_is_the_majority_and_even_votes_are_none() -> None:
    class Stronger:
        samples = 4

        def judge(self, trajectories, seed, progress):
            votes = [(1, 1, 1, -1), (1, -1, 1, -1), (-1, -1, 1, 0)]
            judged = tuple(tuple(Judgement(EMPTY, score) for score in step) for step in votes)
            return [JudgedTrajectory(each, judged) for each in trajectories]

    labeller = Labeller(cast(Speaker, None), cast(Judge, Stronger()))
    played = episodes(2, 3)
    labels = labeller.label(played, 0, View(Console(quiet=True)))
    assert labels == {"0": [1, 0, -1], "1": [1, 0, -1]}
    counted = sit(JudgeExam(played, labels), 3).counts["0"]
    assert (counted[GOOD][1], counted[BAD][1]) == (1, 1), "a step without a label is not counted"


def test_balanced_accuracy_gain_is_the_difference_of_two_sittings() -> None:
    exam = exam_of(LabelledDomain(), episodes(20, 4))
    before, after = sit(exam, 2), sit(exam, 4)
    assert before.diagnostics.balanced_process_accuracy == 0.5
    assert after.diagnostics.balanced_process_accuracy == 1.0
    change = gain(before.counts, after.counts, (GOOD, BAD))
    assert change is not None
    assert change.estimate == pytest.approx(0.5)
    assert change.low <= change.estimate <= change.high


def test_no_change_has_an_interval_that_holds_zero() -> None:
    exam = exam_of(LabelledDomain(), episodes(20, 4))
    change = gain(sit(exam, 3).counts, sit(exam, 3).counts, (GOOD, BAD))
    assert change is not None
    assert change.low <= 0 <= change.high


def test_without_an_oracle_there_is_no_gain_to_report() -> None:
    class Unlabelled(LabelledDomain):
        def oracle(self, task: Task, steps: Sequence[Step]) -> None:  # type: ignore[override]
            del task, steps

    exam = exam_of(Unlabelled(), episodes(3, 2))
    sitting = sit(exam, 1)
    assert sitting.diagnostics.process_accuracy is None
    assert sitting.diagnostics.outcome_accuracy is not None
    assert gain(sitting.counts, sitting.counts, (GOOD, BAD)) is None
    assert pooled(sitting.counts) == {AGREEING: sitting.diagnostics.outcome_accuracy}


def test_what_is_counted_by_episode_adds_up_to_the_accuracies() -> None:
    sitting = sit(exam_of(LabelledDomain(), episodes(3, 4)), 3)
    assert sitting.counts["0"] == {GOOD: (2, 2), BAD: (1, 2), AGREEING: (3, 4)}
    shares, found = pooled(sitting.counts), sitting.diagnostics
    assert shares[AGREEING] == found.outcome_accuracy
    assert (shares[GOOD] + shares[BAD]) / 2 == found.balanced_process_accuracy
