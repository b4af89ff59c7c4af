"""How good is an agent on tasks it never trains on?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rlanything.environments.workers import EnvironmentPool
from rlanything.evaluation.intervals import Interval, wilson
from rlanything.records import Task, Trajectory
from rlanything.rollout import Agent, Attempt, rollout
from rlanything.seeds import derive
from rlanything.view import View


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One pass over the held-out tasks of a split, one episode each."""

    split: str
    trajectories: tuple[Trajectory, ...]
    unplayable: int
    seconds: float

    @property
    def successes(self) -> int:
        return sum(trajectory.outcome == 1 for trajectory in self.trajectories)

    @property
    def success(self) -> Interval | None:
        """With its 95% interval (Wilson); None without episodes."""
        return wilson(self.successes, len(self.trajectories))

    def outcomes(self) -> dict[str, int]:
        """By task, to pair with those of another evaluation."""
        return {each.task.id: each.outcome for each in self.trajectories}


def evaluate(
    agent: Agent,
    environments: EnvironmentPool,
    tasks: Sequence[Task],
    split: str,
    *,
    max_steps: int,
    parallel_episodes: int,
    seed: int,
    view: View,
) -> Evaluation:
    """Plays every task once. The same seed meets the same tasks with the same random numbers."""
    begun = time.perf_counter()
    attempts = [Attempt(f"{split}/{t.id}", t, derive(seed, split, t.id)) for t in tasks]
    with view.phase(f"eval {split}", len(tasks), "episodes") as progress:
        played = rollout(agent, environments, attempts, max_steps, parallel_episodes, progress)
    return Evaluation(split, played.trajectories, len(played.failures), time.perf_counter() - begun)
