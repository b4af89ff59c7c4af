"""A judge that writes unit tests: passing or failing them scores a program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.algorithm.generated_tests import unit_test_signals
from rlanything.algorithm.signals import TaskSignals
from rlanything.domains.base import Domain
from rlanything.engines.base import Sampling
from rlanything.records import Completion, JudgedTrajectory, Judgement, Task, Trajectory
from rlanything.roles.chat_model import ChatModel, ChatRequest
from rlanything.seeds import derive

UT, DETECT = "UT", "Detect"
"""The paper's names of the measures."""


class UnitTestJudge:
    """Writes m tests per task with a language model; they score every rollout of the task."""

    def __init__(
        self, chat_model: ChatModel, domain: Domain, sampling: Sampling, samples: int
    ) -> None:
        self._chat_model = chat_model
        self._domain = domain
        self._sampling = sampling
        self.samples = samples

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        seed: int,
        on_judgements: Callable[[int], None] | None = None,
    ) -> list[JudgedTrajectory]:
        """Returns [trajectories][1][m]: judgements of one task are shared by all its trajectories,
        except for their scores."""
        groups = _by_task(trajectories)
        tasks = {task: trajectories[members[0]].task for task, members in groups.items()}
        answers = self.write_tests(list(tasks.values()), seed)
        judged: dict[int, JudgedTrajectory] = {}
        for (name, members), tests in zip(groups.items(), answers, strict=True):
            responses = [trajectories[i].steps[0].response for i in members]
            table = self._domain.run_tests(tasks[name], responses, list(map(test_in, tests)))
            for i, scores in zip(members, table, strict=True):
                # Without scores if tests do not apply to the task.
                written = tests if scores else ()
                row = tuple(Judgement(*each) for each in zip(written, scores, strict=True))
                judged[i] = JudgedTrajectory(trajectories[i], (row,))
            if on_judgements is not None:
                on_judgements(len(members) * self.samples)
        return [judged[i] for i in range(len(trajectories))]

    def write_tests(self, tasks: Sequence[Task], seed: int) -> list[list[Completion]]:
        """Returns m tests for each task, [tasks][m]."""
        questions = [
            ChatRequest(
                self._domain.judge_prompt(task, ()),
                tuple(derive(seed, task.id, sample) for sample in range(self.samples)),
            )
            for task in tasks
        ]
        answers = self._chat_model.answer(questions, self._sampling) if questions else []
        self._chat_model.release_cache()
        return answers

    def signals(
        self, judged: Sequence[JudgedTrajectory], settings: FeedbackSettings
    ) -> TaskSignals:
        """Returns the advantages of the programs of one task and of the tests for it."""
        return unit_test_signals(
            [each.trajectory.outcome for each in judged],
            _table(judged),
            settings,
            [each.trajectory.reward for each in judged],
            [[len(s.completion.token_ids) for s in each.trajectory.steps] for each in judged],
        )

    def counts(self, judged: Sequence[JudgedTrajectory]) -> dict[str, dict[str, tuple[int, int]]]:
        """Returns counts of the m tests by task: UT, tests that all correct programs pass; Detect,
        those of them that all wrong programs fail. UT needs a correct program, Detect also a wrong
        one. A test is left out of both if the sandbox failed for some programs only; if it failed
        for all, the test counts as unreadable."""
        counts: dict[str, dict[str, tuple[int, int]]] = {}
        for name, members in _by_task([each.trajectory for each in judged]).items():
            group = [judged[i] for i in members]
            outcomes, table = np.array([each.trajectory.outcome for each in group]), _table(group)
            table = table[:, (table != 0).all(axis=0) | (table == 0).all(axis=0)]
            if not (outcomes == 1).any() or not table.size:
                continue
            valid = (table[outcomes == 1] == 1).all(axis=0)
            counts[name] = {UT: (int(valid.sum()), len(valid))}
            if (outcomes == -1).any():
                detected = valid & (table[outcomes == -1] != 1).all(axis=0)
                counts[name][DETECT] = (int(detected.sum()), len(valid))
        return counts


def test_in(written: Completion) -> str:
    """Returns the test in an answer; empty if it was truncated, which may make it another test."""
    return "" if written.stop_reason == "length" else written.answer


def _by_task(trajectories: Sequence[Trajectory]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for i, trajectory in enumerate(trajectories):
        groups[trajectory.task.id].append(i)
    return groups


def _table(judged: Sequence[JudgedTrajectory]) -> np.ndarray:
    """Returns scores [programs, m]."""
    return np.array([each.scores[0] for each in judged])
