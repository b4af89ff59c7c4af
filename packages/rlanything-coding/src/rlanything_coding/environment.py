"""One-step episodes: the policy writes a program, which runs on every ground-truth test."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rlanything.domains.base import EpisodeError, Observation, StepResult
from rlanything.records import Task, Trajectory
from rlanything_coding.answers import program_in
from rlanything_coding.checking import ground_truth
from rlanything_coding.problem import Problem
from rlanything_coding.sandbox.base import (
    Executor,
    RunResult,
    SandboxUnavailable,
    Verdict,
)

SHOWN_CHARACTERS = 200
"""Characters of a failed test's input that the observation shows."""
_FAILED = "Failed: "
_SUMMARY = re.compile(rf"\d+ of \d+ tests passed\. {_FAILED}([\d, ]+)\.")


def failed_tests(trajectory: Trajectory, tests: int) -> set[int] | None:
    """Returns the indices (from 0) of the ground-truth tests that a program failed, or None if the
    episode does not record them."""
    if trajectory.reward in (0.0, 1.0):
        return set() if trajectory.reward else set(range(tests))
    said = _SUMMARY.match(trajectory.steps[-1].next_observation)
    return {int(number) - 1 for number in said[1].split(", ")} if said else None


class CodingEnvironment:
    """Runs programs in the executor that `executor()` returns when the first program arrives."""

    def __init__(
        self, executor: Callable[[], Executor], memory_mb: int, all_failures: bool = False
    ) -> None:
        """`all_failures`: list the numbers of all failed tests in the last observation, as
        `failed_tests` reads them; otherwise describe only the first."""
        self._executor = executor
        self._memory_mb = memory_mb
        self._all_failures = all_failures

    def reset(self, task: Task) -> Observation:
        self._task_id = task.id
        self._problem = Problem.from_data(task.data)
        return Observation(self._problem.question)

    def step(self, response: str) -> StepResult:
        """Runs the program on the tests. The episode is won if all pass; the reward is the share
        that passes."""
        program = program_in(response)
        if program is None:
            observation = Observation("There is no fenced Python program in the answer.")
            return StepResult(observation, None, False, -1, 0.0)
        try:
            results = ground_truth(self._executor(), self._problem, program, self._memory_mb)
        except SandboxUnavailable as fault:
            raise EpisodeError(self._task_id, f"there is no sandbox: {fault}") from fault
        for result in results:
            if result.verdict is Verdict.BROKEN:
                raise EpisodeError(self._task_id, f"the sandbox failed: {result.reason}")
        passed = sum(result.verdict is Verdict.OK for result in results)
        won = passed == len(results)
        observation = Observation(self._summary(results))
        return StepResult(observation, program, True, 1 if won else -1, passed / len(results))

    def _summary(self, results: Sequence[RunResult]) -> str:
        passed = sum(result.verdict is Verdict.OK for result in results)
        line = f"{passed} of {len(results)} tests passed."
        failed = [n for n, result in enumerate(results, 1) if result.verdict is not Verdict.OK]
        if self._all_failures and failed:
            line = f"{line} {_FAILED}{', '.join(map(str, failed))}."
        for test, result in zip(self._problem.tests, results, strict=False):
            if result.verdict is not Verdict.OK:
                reason = f" ({result.reason})" if result.reason else ""
                shown = test.input.strip()[:SHOWN_CHARACTERS]
                return f"{line} First failure: {result.verdict}{reason} on input {shown!r}."
        return line
