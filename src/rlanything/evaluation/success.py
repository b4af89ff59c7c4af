"""The evaluation of an agent on tasks it never trains on."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rlanything.evaluation.intervals import Interval, mean_over_tasks, wilson
from rlanything.progress import Progress
from rlanything.records import Task, Trajectory
from rlanything.rollout.episodes import Agent, RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """One pass over the held-out tasks of a split."""

    split: str
    trajectories: tuple[Trajectory, ...]
    """Those of one task stand together."""
    unplayable: int
    seconds: float

    @property
    def success(self) -> Interval | None:
        """With its 95% interval: Wilson's, or over tasks where they are played several times; None
        without episodes."""
        return success_interval([each.task.id for each in self.trajectories], self.outcomes)

    def __repr__(self) -> str:
        episodes, success = len(self.trajectories), self.success
        if success is None:
            return f"{self.split}: no episodes"
        low, high = success.low * 100, success.high * 100
        share = f"{success.estimate:.1%} [{low:.1f}, {high:.1f}]"
        return f"{self.split}: success {share} over {episodes} episodes"

    @property
    def outcomes(self) -> list[int]:
        return [each.outcome for each in self.trajectories]


def success_interval(tasks: Sequence[str], outcomes: Sequence[int]) -> Interval | None:
    """Returns the share of won episodes, given the task [episodes] and the outcome [episodes] of
    each: Wilson's where no task occurs twice, else over tasks."""
    shares = won_shares(tasks, outcomes)
    if len(shares) == len(tasks):
        return wilson(sum(outcome == 1 for outcome in outcomes), len(outcomes))
    return mean_over_tasks(list(shares.values()))


def won_shares(tasks: Sequence[str], outcomes: Sequence[int]) -> dict[str, float]:
    """Returns by task the share of its episodes that were won."""
    played: dict[str, list[bool]] = defaultdict(list)
    for task, outcome in zip(tasks, outcomes, strict=True):
        played[task].append(outcome == 1)
    return {task: sum(won) / len(won) for task, won in played.items()}


def evaluate(
    agent: Agent,
    environments: EnvironmentPool,
    tasks: Sequence[Task],
    split: str,
    *,
    max_steps: int,
    parallel_episodes: int,
    seed: int,
    progress: Progress,
    rollouts: int = 1,
) -> Evaluation:
    """Plays every task `rollouts` times. The same seed meets the same tasks with the same random
    numbers, and the first rollout of a task is the same however many follow."""
    begun = time.perf_counter()
    attempts = [
        RolloutRequest("/".join((split, t.id, *more)), t, derive(seed, split, t.id, *more))
        for t in tasks
        for more in [(), *((str(g),) for g in range(1, rollouts))]
    ]
    with progress.phase(f"eval {split}", len(attempts), "episodes") as advance:
        played = rollout(agent, environments, attempts, max_steps, parallel_episodes, advance)
    seconds = time.perf_counter() - begun
    return Evaluation(split, played.trajectories, len(played.failures), seconds)
