"""The evaluation of the judge: the same episodes each time, intervals over episodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console

from rlanything.domains.base import Domain, DomainError
from rlanything.evaluation.counts import gain, pooled
from rlanything.evaluation.judge_eval import AGREEING, BAD, GOOD, JudgeEvalSet
from rlanything.evaluation.labels import Labeller, oracle_labels
from rlanything.progress import Progress
from rlanything.records import (
    Completion,
    JudgedTrajectory,
    Judgement,
    Step,
    Task,
    Trajectory,
)
from rlanything.roles.chat_model import ChatModel
from rlanything.roles.judges.base import StepJudge
from rlanything.roles.judges.llm import LLMJudge

EMPTY = Completion.unsampled("")


class LabelledDomain:
    """Every other step is good."""

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int]:
        del task
        return [1 if i % 2 == 0 else -1 for i in range(len(steps))]


class ScriptedJudge(StepJudge):
    """Right on the first `right` steps of every episode, wrong after them."""

    samples = 3

    def __init__(self, right: int) -> None:
        self.right = right

    def judge(
        self, trajectories: Sequence[Trajectory], seed: int, advance: Any
    ) -> list[JudgedTrajectory]:
        del seed, advance
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


def eval_set(domain: object, played: list[Trajectory]) -> JudgeEvalSet:
    return JudgeEvalSet(played, oracle_labels(cast(Domain, domain), played))


def evaluate(judge_eval: JudgeEvalSet, right: int) -> Any:
    return judge_eval.evaluate(
        cast(LLMJudge, ScriptedJudge(right)), 1.0, 0, Progress(Console(quiet=True))
    )


def test_a_label_is_the_majority_and_even_votes_are_none() -> None:
    class Stronger:
        samples = 4

        def judge(self, trajectories, seed, advance):
            votes = [(1, 1, 1, -1), (1, -1, 1, -1), (-1, -1, 1, 0)]
            judged = tuple(tuple(Judgement(EMPTY, score) for score in step) for step in votes)
            return [JudgedTrajectory(each, judged) for each in trajectories]

    labeller = Labeller(cast(ChatModel, None), cast(LLMJudge, Stronger()))
    played = episodes(2, 3)
    labels = labeller.label(played, 0, Progress(Console(quiet=True)))
    assert labels == {"0": [1, 0, -1], "1": [1, 0, -1]}
    counted = evaluate(JudgeEvalSet(played, labels), 3).counts["0"]
    assert (counted[GOOD][1], counted[BAD][1]) == (1, 1), "a step without a label is not counted"


@pytest.mark.parametrize(
    "labels",
    [[1], [1, -1, 1, -1], [1, None, 1], [True, False, True], [1, 2, 1], [np.True_] * 3, "ab1"],
)
def test_an_oracle_that_labels_with_something_else_is_told_so(labels: Any) -> None:
    domain = SimpleNamespace(oracle=lambda task, steps: labels)
    with pytest.raises(DomainError, match=r"the 3 step\(s\) of task '0' with .*, or None in"):
        eval_set(domain, episodes(1, 3))


def test_an_oracle_may_compute_with_numpy() -> None:
    domain = SimpleNamespace(oracle=lambda task, steps: np.array([1, -1, 0]))
    labels = oracle_labels(cast(Domain, domain), episodes(1, 3))
    assert json.dumps(labels) == '{"0": [1, -1, 0]}'


def test_a_judge_of_steps_may_count_measures_of_its_own_beside_the_usual() -> None:
    class Counting(ScriptedJudge):
        def counts(self, judged: Any) -> dict[str, dict[str, tuple[int, int]]]:
            return {each.trajectory.task.id: {"mine": (1, 2)} for each in judged}

    judge_eval = eval_set(LabelledDomain(), episodes(2, 4))
    counted = judge_eval.evaluate(
        cast(LLMJudge, Counting(2)), 1.0, 0, Progress(Console(quiet=True))
    ).counts
    assert pooled(counted) == {GOOD: 0.5, BAD: 0.5, AGREEING: 0.5, "mine": 0.5}


def test_balanced_accuracy_gain_is_the_difference_of_two_evaluations() -> None:
    judge_eval = eval_set(LabelledDomain(), episodes(20, 4))
    before, after = evaluate(judge_eval, 2), evaluate(judge_eval, 4)
    assert before.diagnostics.balanced_process_accuracy == 0.5
    assert after.diagnostics.balanced_process_accuracy == 1.0
    change = gain(before.counts, after.counts, (GOOD, BAD))
    assert change is not None
    assert change.estimate == pytest.approx(0.5)
    assert change.low <= change.estimate <= change.high


def test_no_change_has_an_interval_that_holds_zero() -> None:
    judge_eval = eval_set(LabelledDomain(), episodes(20, 4))
    change = gain(evaluate(judge_eval, 3).counts, evaluate(judge_eval, 3).counts, (GOOD, BAD))
    assert change is not None
    assert change.low <= 0 <= change.high


def test_without_an_oracle_there_is_no_gain_to_report() -> None:
    class Unlabelled(LabelledDomain):
        def oracle(self, task: Task, steps: Sequence[Step]) -> None:  # type: ignore[override]
            del task, steps

    judge_eval = eval_set(Unlabelled(), episodes(3, 2))
    evaluated = evaluate(judge_eval, 1)
    assert evaluated.diagnostics.process_accuracy is None
    assert evaluated.diagnostics.outcome_accuracy is not None
    assert gain(evaluated.counts, evaluated.counts, (GOOD, BAD)) is None
    assert pooled(evaluated.counts) == {AGREEING: evaluated.diagnostics.outcome_accuracy}


def test_rollouts_of_one_task_are_counted_together() -> None:
    played = [replace(each, task=Task("one", "")) for each in episodes(3, 4)]
    evaluated = evaluate(eval_set(LabelledDomain(), played), 3)
    apart = evaluate(eval_set(LabelledDomain(), episodes(3, 4)), 3)
    assert [*evaluated.counts] == ["one"]
    assert pooled(evaluated.counts) == pooled(apart.counts)


def test_what_is_counted_by_episode_adds_up_to_the_accuracies() -> None:
    evaluated = evaluate(eval_set(LabelledDomain(), episodes(3, 4)), 3)
    assert evaluated.counts["0"] == {GOOD: (2, 2), BAD: (1, 2), AGREEING: (3, 4)}
    shares, found = pooled(evaluated.counts), evaluated.diagnostics
    assert shares[AGREEING] == found.outcome_accuracy
    assert (shares[GOOD] + shares[BAD]) / 2 == found.balanced_process_accuracy
