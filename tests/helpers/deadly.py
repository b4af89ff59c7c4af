"""A domain two of whose tasks do harm. Alone in its file: workers import it, and little with it."""

from __future__ import annotations

import os
import signal

from rlanything.domains.base import Observation, StepResult
from rlanything.domains.text import TextDomain
from rlanything.records import Task


class Deadly(TextDomain):
    """One of its tasks kills the worker that plays it; one stops its worker for good."""

    action_marker = ">"

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        harm = {0: "kill", 1: "stop"} if split == "train" else {}
        return [Task(f"{split}{i}", "say go", data={"harm": harm.get(i)}) for i in range(count)]

    def environment(self) -> DeadlyEnvironment:
        return DeadlyEnvironment()


class DeadlyEnvironment:
    def reset(self, task: Task) -> Observation:
        if task.data["harm"]:
            number = signal.SIGKILL if task.data["harm"] == "kill" else signal.SIGSTOP
            os.kill(os.getpid(), number)
        return Observation("?", ("go", "stay"))

    def step(self, response: str) -> StepResult:
        action = TextDomain.action_in(response)
        won = 1 if action == "go" else -1
        return StepResult(Observation("!", ("go", "stay")), action, action is not None, won)
