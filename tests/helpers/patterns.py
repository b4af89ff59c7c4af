"""A domain of things to look at."""

from __future__ import annotations

from collections.abc import Sequence

from rlanything.domains.base import Capabilities, Image, Observation, StepResult
from rlanything.domains.text import TextDomain
from rlanything.engines.images import noise_png
from rlanything.records import Task


class Walls:
    """Episodes of two steps, each before a wall with a pattern of its own."""

    def reset(self, task: Task) -> Observation:
        self._task, self._steps = task, 0
        return self._seen()

    def step(self, response: str) -> StepResult:
        self._steps += 1
        over = self._steps == 2
        outcome = (1 if len(response) % 2 else -1) if over else None
        return StepResult(self._seen(), response[:5], True, outcome)

    def _seen(self) -> Observation:
        number = int(self._task.id.split("/")[1])
        size = (16, 24) if self._steps % 2 else (24, 16)
        picture = noise_png(3 * number + self._steps, *size)
        return Observation(f"wall {self._steps}", image=Image(picture))


class Patterns(TextDomain):
    """A domain of things to look at."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(shows_images=True)

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        return [Task(f"{split}/{i}", "Which pattern?") for i in range(count)]

    def environment(self) -> Walls:
        return Walls()
