"""Environments that take their time, in a module that workers import in none."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from rlanything.domains.base import Observation, StepResult
from rlanything.domains.text import TextRollouts
from rlanything.records import Task
from rlanything.rollout.episodes import Agent, RolloutRequest, Rollouts, rollout
from rlanything.rollout.workers import EnvironmentPool


class Delayed(TextRollouts):
    """Episodes of four steps, some of which take their time: `delays[step]` seconds, the third one
    until the file `waits_for` exists."""

    def environment(self) -> DelayedEnvironment:
        return DelayedEnvironment()


class DelayedEnvironment:
    def reset(self, task: Task) -> Observation:
        self._task, self._step = task, 0
        return Observation(f"{task.id} begins", ("go on", "go back", "sing"))

    def step(self, response: str) -> StepResult:
        time.sleep(self._task.data["delays"][self._step])
        awaited = Path(self._task.data.get("waits_for", "/"))
        while self._step == 2 and not awaited.exists():
            time.sleep(0.01)
        dies = Path(self._task.data.get("dies", "/"))
        if self._step == 2 and not dies.exists():
            dies.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self._step += 1
        seen = Observation(f"after {response}", ("go on", "go back", "sing"))
        return StepResult(seen, response, True, 1 if self._step == 4 else None)


def delayed(
    agent: Agent,
    delays: Sequence[Sequence[float]],
    workers: int,
    lockstep: bool,
    at_once: int = 8,
    **data: str,
) -> tuple[Rollouts, float]:
    """The rollouts, `at_once` at a time, and the seconds they took once the workers were up."""
    with EnvironmentPool(Delayed(), {}, workers, 20.0) as pool:
        pool.reset([Task("warm", "", data={})] * workers)
        begun = time.monotonic()
        requests = [
            RolloutRequest(str(i), Task(str(i), "", data={"delays": list(each)} | data), seed=i)
            for i, each in enumerate(delays)
        ]
        rollouts = rollout(agent, pool, requests, 5, at_once, None, lockstep)
        return rollouts, time.monotonic() - begun


def spoken(rollouts: Rollouts) -> list[list[str]]:
    return [[step.response for step in each.steps] for each in rollouts.trajectories]
