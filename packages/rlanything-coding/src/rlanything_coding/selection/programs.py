"""Programs written for a task, and the tools of test-time methods: run, repair, write tests.

A method sees only generated tests, never the ground truth, and returns one program for each task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from rlanything.records import Task


@dataclass(frozen=True, slots=True)
class TaskPrograms:
    """The programs that a policy wrote for one task, with the judge's tests of it."""

    task: Task
    programs: tuple[str, ...]
    """The policy's responses, at least one."""
    tests: tuple[str, ...]
    """The judge's answers."""
    scores: tuple[tuple[int, ...], ...]
    """[programs][tests]: +1 passed, -1 failed, 0 if the test cannot be read."""

    @property
    def best(self) -> str:
        """The program that passes most tests, the first of equals: best-of-N."""
        return self.programs[max(range(len(self.programs)), key=lambda i: self.scores[i].count(1))]


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """A program that fails a test."""

    task: Task
    program: str
    test: str


class Bench(Protocol):
    """The policy, the judge and the sandbox, as far as a method may use them."""

    def repair(self, asked: Sequence[RepairRequest]) -> list[str]:
        """Returns the policy's next version of each program."""
        ...

    def run(self, task: Task, programs: Sequence[str], tests: Sequence[str]) -> list[list[int]]:
        """Returns scores [programs][tests] as in `TaskPrograms`."""
        ...

    def outputs(self, task: Task, programs: Sequence[str], tests: Sequence[str]) -> list[list[str]]:
        """Returns each program's output on the input of each test, [programs][tests]."""
        ...

    def more_tests(self, tasks: Sequence[Task]) -> list[list[str]]:
        """Returns new tests by the judge for each task."""
        ...


Method: TypeAlias = Callable[[Sequence[TaskPrograms], Bench], list[str]]
"""Returns the chosen program for each task; it may be a new one."""
Ask: TypeAlias = Callable[[int, int], int | None]
"""Returns the test for which program i of task k is to be repaired; None: no repair."""
Keep: TypeAlias = Callable[[int, int, int, Sequence[int]], bool]
"""Returns whether a repair of program i of task k for test j is kept, from its scores [tests]."""


def repaired(
    tasks: Sequence[TaskPrograms], bench: Bench, ask: Ask, keep: Keep
) -> list[TaskPrograms]:
    """Returns the tasks after one round of repairs, which the policy answers all at once."""
    asked = [
        (k, i, j)
        for k, task in enumerate(tasks)
        for i in range(len(task.programs))
        if (j := ask(k, i)) is not None
    ]
    answers = bench.repair(
        [RepairRequest(tasks[k].task, tasks[k].programs[i], tasks[k].tests[j]) for k, i, j in asked]
    )
    after = list(tasks)
    for k, task in enumerate(tasks):
        new = [(i, j, text) for (n, i, j), text in zip(asked, answers, strict=True) if n == k]
        if not new:
            continue
        rows = bench.run(task.task, [text for _, _, text in new], task.tests)
        programs = list(task.programs)
        scores = list(task.scores)
        for (i, j, text), row in zip(new, rows, strict=True):
            if keep(k, i, j, row):
                programs[i], scores[i] = text, tuple(row)
        after[k] = replace(task, programs=tuple(programs), scores=tuple(scores))
    return after
