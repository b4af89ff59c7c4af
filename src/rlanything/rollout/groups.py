"""The rollout groups of one iteration, and their samples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlanything.algorithm.curriculum import direction
from rlanything.algorithm.signals import TaskSignals
from rlanything.records import Direction, JudgedTrajectory, Sample, Task, Trajectory


@dataclass(frozen=True, slots=True)
class ScheduledTask:
    """A task to be rolled out in this iteration."""

    slot: str
    task: Task
    candidate: bool
    """Whether it is a slot's pending candidate, not its active task."""
    begun: int = 0
    """The iteration in which its rollouts began."""


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """A rollout group: the judged trajectories of one task."""

    scheduled: ScheduledTask
    judged: tuple[JudgedTrajectory, ...]
    accuracy: float
    """Share of the trajectories that were won."""
    signals: TaskSignals
    unplayable: int = 0
    """Number of rollouts that could not be played to their end and are missing here."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Accuracy if the missing rollouts had been lost, and if they had been won."""
        if not self.unplayable:
            return self.accuracy, self.accuracy
        won = sum(member.trajectory.outcome == 1 for member in self.judged)
        total = len(self.judged) + self.unplayable
        return won / total, (won + self.unplayable) / total

    def direction(self, alpha_low: float, alpha_high: float) -> Direction | None:
        """Returns the direction in which the task should move; None if it should stay, or if that
        depends on missing rollouts."""
        lowest, highest = self.bounds
        if_lost = direction(lowest, alpha_low, alpha_high)
        return if_lost if if_lost == direction(highest, alpha_low, alpha_high) else None

    @property
    def compares(self) -> bool:
        """Whether it may train: a single rollout left of several has nothing to compare with."""
        return len(self.judged) > 1 or not self.unplayable

    @property
    def trajectories(self) -> list[Trajectory]:
        """The trajectories without their judgements."""
        return [member.trajectory for member in self.judged]

    @property
    def failed(self) -> tuple[JudgedTrajectory, ...]:
        return tuple(member for member in self.judged if member.trajectory.outcome == -1)

    def samples(self, role: str, acting: str = "policy") -> Iterator[Sample]:
        """Yields a role's samples with a nonzero advantage: judgements for a judge, responses for a
        role that acts. `acting`: the first role that acts, whose steps name no player. Empty
        completions are left out."""
        if role in self.signals.judges:
            return self._judgements(role)
        return self._responses("" if role == acting else role)

    def _responses(self, player: str) -> Iterator[Sample]:
        for member, advantages in zip(self.judged, self.signals.policy, strict=True):
            trajectory = member.trajectory
            for i, (step, advantage) in enumerate(zip(trajectory.steps, advantages, strict=True)):
                given = advantage.tolist()
                own = tuple(given) if isinstance(given, list) else given
                sample = Sample(f"{trajectory.id}/{i}", step.completion, own)
                if sample.trains and step.completion.token_ids and step.player == player:
                    yield sample

    def _judgements(self, judge: str) -> Iterator[Sample]:
        for member, by_step in zip(self.judged, self.signals.judges[judge], strict=True):
            steps = zip(member.judgements, by_step, strict=True)
            for i, (judgements, advantages) in enumerate(steps):
                own = [(j, each) for j, each in enumerate(judgements) if each.by == judge]
                for (j, judgement), advantage in zip(own, advantages, strict=True):
                    if advantage and judgement.completion.token_ids:
                        source = f"{member.trajectory.id}/{i}/{j}"
                        yield Sample(source, judgement.completion, float(advantage))


def shuffled(samples: Sequence[tuple[str, Sample]], seed: int) -> list[tuple[str, Sample]]:
    """Returns (task id, sample) pairs with shuffled advantages: training on noise."""
    order = np.random.default_rng(seed).permutation(len(samples))
    return [
        (task, replace(sample, advantage=samples[other][1].mean_advantage))
        for (task, sample), other in zip(samples, order, strict=True)
    ]


def grouped(
    scheduled: Sequence[ScheduledTask],
    judged: Sequence[JudgedTrajectory],
    signals: Callable[[Sequence[JudgedTrajectory]], TaskSignals],
    unplayable: Sequence[str] = (),
) -> list[RolloutGroup]:
    """Returns one group per scheduled task, in order; a task without a finished rollout has none.
    `signals` computes the advantages for the judged trajectories of one task; `unplayable`: the
    task of every rollout that could not be played."""
    missing = Counter(unplayable)
    by_task: dict[str, list[JudgedTrajectory]] = defaultdict(list)
    for member in judged:
        by_task[member.trajectory.task.id].append(member)
    groups: list[RolloutGroup] = []
    for entry in scheduled:
        members = by_task[entry.task.id]
        if members:
            taught = signals(members)
            accuracy, unplayed = taught.accuracy, missing[entry.task.id]
            groups.append(RolloutGroup(entry, tuple(members), accuracy, taught, unplayed))
    return groups
