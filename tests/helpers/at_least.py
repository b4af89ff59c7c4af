"""A made-up domain whose judge writes tests: say a number that is at least a task's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlanything.domains.base import (
    Capabilities,
    DomainError,
    DomainOptions,
    Environment,
    File,
    InvalidTask,
    Observation,
    StepResult,
)
from rlanything.domains.text import TextDomain
from rlanything.records import Message, Messages, Step, Task

NUMBERS = tuple(str(number) for number in range(1, 9))
SPLITS = ("train", "in_domain", "ood")


def first_number(text: str | None) -> int | None:
    return next((int(letter) for letter in text or "" if letter in NUMBERS), None)


class AtLeast(TextDomain):
    """A test is a number as well, the first in what the judge writes; a response passes it whose
    number is no smaller."""

    class Options(DomainOptions):
        data: File | None = None
        """File with the numbers of all tasks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._numbers = [2, 3, 4, 5, 6, 7, 8]
        if (data := self.options.data) is not None:
            if not data.is_file():
                raise DomainError(f"data: {data}: there is no such file")
            self._numbers = [int(line) for line in data.read_text().split()]

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, judge="tests")

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        if split not in SPLITS:
            raise DomainError(f"unknown split {split!r}: use one of {', '.join(SPLITS)}")
        at, numbers = seed + SPLITS.index(split), self._numbers
        return [self._task(f"{split}-{i}", numbers[(i + at) % len(numbers)]) for i in range(count)]

    def _task(self, name: str, least: int) -> Task:
        return Task(name, f"Say a number of at least {least}.", data={"least": least})

    def environment(self) -> Environment:
        return AtLeastEnvironment()

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        del steps  # one test serves all responses
        return (Message("user", f"{task.instruction}\nWrite a number that a right one reaches."),)

    def run_tests(
        self, task: Task, responses: Sequence[str], tests: Sequence[str]
    ) -> list[list[int]]:
        del task
        return [[self._score(response, test) for test in tests] for response in responses]

    def _score(self, response: str, test: str) -> int:
        said, wanted = first_number(self.action_in(response)), first_number(test)
        return 0 if wanted is None else 1 if said is not None and said >= wanted else -1

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        least = first_number(completion)
        if least in (None, root.data["least"]):
            raise InvalidTask("no other number in the answer")
        return self._task(task_id, least)


class AtLeastEnvironment:
    def reset(self, task: Task) -> Observation:
        self._least = task.data["least"]
        return Observation("Say it.", NUMBERS)

    def step(self, response: str) -> StepResult:
        action = AtLeast.action_in(response)
        said = first_number(action)
        won = said is not None and said >= self._least
        seen = Observation("Right." if won else "Too small.", NUMBERS)
        return StepResult(seen, action, said is not None, 1 if won else -1)
