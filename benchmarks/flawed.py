"""AlfWorld whose outcomes in training are partly wrong or missing: a domain for studies of what a
judge is worth there. Held-out episodes are counted as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlanything.domains.base import Observation, StepResult
from rlanything.records import Task
from rlanything.seeds import derive
from rlanything_alfworld.domain import AlfWorld
from rlanything_alfworld.environment import AlfWorldEnvironment


class FlawedOutcomes(AlfWorld):
    """`wrong`: the share of training episodes that are told as lost where they were won, and as won
    where they were lost; `missing`: the share of training tasks whose episodes are all told as
    lost, so that their outcomes tell nothing apart; `max_steps`: `loop.max_steps`."""

    def __init__(
        self, max_steps: int, wrong: float = 0.0, missing: float = 0.0, **options: Any
    ) -> None:
        super().__init__(**options)
        self._flaws = (max_steps, wrong, missing)

    def environment(self) -> AlfWorldEnvironment:
        return FlawedEnvironment(*self._flaws)


class FlawedEnvironment(AlfWorldEnvironment):
    """Plays as AlfWorld does. The same episode is always told alike."""

    def __init__(self, max_steps: int, wrong: float, missing: float) -> None:
        super().__init__(idle_actions=False)
        self._max_steps, self._wrong, self._missing = max_steps, wrong, missing
        self._task_id, self._said = "", [""]

    def reset(self, task: Task) -> Observation:
        self._task_id, self._said = task.id, []
        return super().reset(task)

    def step(self, response: str) -> StepResult:
        self._said.append(response)
        result = super().step(response)
        over = result.outcome is not None or len(self._said) == self._max_steps
        if not over or not self._task_id.startswith("train"):
            return result
        return replace(result, outcome=self._told(result.outcome or -1))

    def _told(self, outcome: int) -> int:
        if _share("missing", self._task_id) < self._missing:
            return -1
        return -outcome if _share("wrong", self._task_id, *self._said) < self._wrong else outcome


def _share(*of: str) -> float:
    """Returns a number from 0 to 1, drawn by what it is for."""
    return derive(0, *of) / 2**63
