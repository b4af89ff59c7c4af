"""Evaluation of an agent on held-out tasks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlanything.evaluation.intervals import Interval, mean_over_tasks
from rlanything.progress import Progress
from rlanything.records import Task, Trajectory
from rlanything.rollout.episodes import Agent, RolloutRequest, faults, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """One pass over the held-out tasks of a split."""

    split: str
    trajectories: tuple[Trajectory, ...]
    """Played episodes; those of one task are adjacent."""
    unplayable: tuple[Task, ...]
    """The task of every episode that could not be played to its end: not begun, or masked."""
    seconds: float
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Reason of each task that could not be played, by its id."""

    @property
    def mean_reward(self) -> tuple[float, float] | None:
        """Mean reward of the played episodes, and of all episodes with 0 for unplayable ones; None
        if the environment gives no rewards. An episode that ended without a reward has 0."""
        rewards = [each.reward for each in self.trajectories]
        if all(reward is None for reward in rewards):
            return None
        total = sum(reward or 0.0 for reward in rewards)
        return total / len(rewards), total / (len(rewards) + len(self.unplayable))

    @property
    def success(self) -> Interval | None:
        """Success with its 95% interval over tasks; None without episodes. The interval covers all
        possible outcomes of unplayable episodes."""
        return success_interval(self.tasks, self.outcomes)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Success if all unplayable episodes were lost, and if they were won; None without any."""
        return success_bounds(self.tasks, self.outcomes)

    def __repr__(self) -> str:
        episodes, success = len(self.trajectories), self.success
        if success is None:
            return f"{self.split}: no episodes"
        low, high = success.low * 100, success.high * 100
        share = f"{success.estimate:.1%} [{low:.1f}, {high:.1f}]"
        missing = f" ({len(self.unplayable)} unplayable)" if self.unplayable else ""
        return f"{self.split}: success {share} over {episodes} episodes{missing}"

    @property
    def tasks(self) -> list[str]:
        """The task of each episode."""
        return [each.task.id for each in self.trajectories] + [task.id for task in self.unplayable]

    @property
    def outcomes(self) -> list[int]:
        """Outcomes [episodes], +1 or -1, and 0 for episodes that could not be played."""
        return [each.outcome for each in self.trajectories] + [0] * len(self.unplayable)


def success_interval(tasks: Sequence[str], outcomes: Sequence[int]) -> Interval | None:
    """Returns the share of won episodes, given the task [episodes] and the outcome [episodes] of
    each, with its interval over tasks; None if none was played.

    An outcome of 0 is an episode that could not be played. The estimate ignores it, and the
    interval covers both extremes, all of them lost and all of them won."""
    played = [i for i, outcome in enumerate(outcomes) if outcome]
    measured = _interval([tasks[i] for i in played], [outcomes[i] for i in played])
    if measured is None or len(played) == len(outcomes):
        return measured
    return widened(measured, *(_interval(tasks, with_fate(outcomes, fate)) for fate in (-1, 1)))


def success_bounds(tasks: Sequence[str], outcomes: Sequence[int]) -> tuple[float, float] | None:
    """Returns the share of won episodes if the unplayable ones were lost, and if they were won;
    None if there are none."""
    if all(outcomes):
        return None
    lost, won = (_interval(tasks, with_fate(outcomes, fate)) for fate in (-1, 1))
    return (lost.estimate, won.estimate) if lost and won else None


def with_fate(outcomes: Sequence[int], fate: int) -> list[int]:
    """Returns the outcomes, with `fate` for episodes that could not be played."""
    return [outcome or fate for outcome in outcomes]


def widened(measured: Interval, *ends: Interval | None) -> Interval:
    """Returns the estimate with an interval that covers the other intervals too."""
    known = [measured, *(end for end in ends if end is not None)]
    low, high = min(end.low for end in known), max(end.high for end in known)
    return Interval(measured.estimate, low, high)


def _interval(tasks: Sequence[str], outcomes: Sequence[int]) -> Interval | None:
    return mean_over_tasks(list(won_shares(tasks, outcomes).values()))


def won_shares(tasks: Sequence[str], outcomes: Sequence[int]) -> dict[str, float]:
    """Returns the share of won episodes by task."""
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
    lockstep: bool = True,
) -> Evaluation:
    """Plays every task `rollouts` times. The same seed gives the same random numbers, and a task's
    first rollout does not depend on `rollouts`."""
    begun = time.perf_counter()
    attempts = [
        RolloutRequest("/".join((split, t.id, *more)), t, derive(seed, split, t.id, *more))
        for t in tasks
        for more in [(), *((str(g),) for g in range(1, rollouts))]
    ]
    with progress.phase(f"eval {split}", len(attempts), "episodes") as advance:
        played = rollout(
            agent, environments, attempts, max_steps, parallel_episodes, advance, lockstep
        )
    seconds = time.perf_counter() - begun
    for fault in faults(played.failures, played.crashes):
        progress.warn(fault)
    answers = [step.completion for episode in played.trajectories for step in episode.steps]
    if empty := sum(answer.stop_reason == "length" and not answer.text for answer in answers):
        progress.warn(
            f"{split}: {empty} of {len(answers)} answers are empty and were cut off: prompts leave "
            "no room in the model's context, or its reasoning takes all of policy.max_tokens"
        )
    reasons = {
        task.id: failure.reason
        for task, failure in zip(played.unplayable, played.failures, strict=True)
    }
    return Evaluation(split, played.trajectories, played.unplayable, seconds, reasons)
