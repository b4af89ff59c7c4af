"""A small domain whose responses decide what its episodes do."""

from __future__ import annotations

from collections.abc import Sequence

from rlanything.domains.base import DomainError, EpisodeError, Image, Observation, StepResult
from rlanything.domains.text import TextDomain
from rlanything.records import Task

LONG = "  two  spaces " * 4000


class OddEnvironment:
    def reset(self, task: Task) -> Observation:
        self._task = task
        if task.data["broken"]:
            raise EpisodeError(task.id, "its level\nis missing")
        return Observation("A door.", ("open", "leave"), Image(b"picture"))

    def step(self, response: str) -> StepResult:
        match response:
            case "win":
                return StepResult(Observation("Won."), "win", True, 1, 0.75)
            case "raise":
                raise ValueError("it fell off")
            case "outage":
                raise EpisodeError(self._task.id, "the disk is full")
        return StepResult(Observation(LONG if response == "long" else "Hm."), None, False)


class Odd(TextDomain):
    """Three tasks for training, of which the last one cannot be played, and one held out."""

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        numbers = {"train": 3, "in_domain": 1}
        if split not in numbers:
            raise DomainError(f"no split {split!r}")
        names = range(min(count, numbers[split]))
        return [Task(f"{split}-{n}", "Get out.", data={"broken": n == 2}) for n in names]

    def environment(self) -> OddEnvironment:
        return OddEnvironment()
