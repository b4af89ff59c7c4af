"""What one iteration lived through, group by group, and the samples that come of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlanything.algorithm.feedback import TaskSignals
from rlanything.records import JudgedTrajectory, Sample, Task, Trajectory


@dataclass(frozen=True, slots=True)
class ScheduledTask:
    """A task to be rolled out in this iteration."""

    slot: str
    task: Task
    candidate: bool
    """Whether it is a slot's pending candidate rather than its active task."""


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """A rollout group: the judged trajectories of one task."""

    scheduled: ScheduledTask
    judged: tuple[JudgedTrajectory, ...]
    accuracy: float
    signals: TaskSignals

    @property
    def trajectories(self) -> list[Trajectory]:
        """The trajectories without their judgements."""
        return [member.trajectory for member in self.judged]

    @property
    def failed(self) -> tuple[JudgedTrajectory, ...]:
        return tuple(each for each in self.judged if each.trajectory.outcome == -1)

    def policy_samples(self) -> Iterator[Sample]:
        """Every response whose advantage is not 0."""
        for each, advantages in zip(self.judged, self.signals.policy, strict=True):
            trajectory = each.trajectory
            for i, (step, advantage) in enumerate(zip(trajectory.steps, advantages, strict=True)):
                if advantage:
                    yield Sample(f"{trajectory.id}/{i}", step.completion, float(advantage))

    def judge_samples(self) -> Iterator[Sample]:
        """Every judgement whose advantage is not 0."""
        for each, steps in zip(self.judged, self.signals.judge, strict=True):
            for i, (judgements, advantages) in enumerate(zip(each.judgements, steps, strict=True)):
                for j, advantage in enumerate(advantages):
                    if advantage:
                        source = f"{each.trajectory.id}/{i}/{j}"
                        yield Sample(source, judgements[j].completion, float(advantage))


def shuffled(samples: Sequence[tuple[str, Sample]], seed: int) -> list[tuple[str, Sample]]:
    """The same (task id, sample) pairs, their advantages dealt out anew: training on nothing."""
    order = np.random.default_rng(seed).permutation(len(samples))
    return [
        (task, replace(sample, advantage=samples[other][1].advantage))
        for (task, sample), other in zip(samples, order, strict=True)
    ]


def grouped(
    scheduled: Sequence[ScheduledTask],
    judged: Sequence[JudgedTrajectory],
    signals: Callable[[Sequence[JudgedTrajectory]], TaskSignals],
) -> list[RolloutGroup]:
    """Returns one group per scheduled task, in their order; a task none of whose rollouts ended has
    none. `signals` computes what the judged trajectories of one task teach."""
    by_task: dict[str, list[JudgedTrajectory]] = defaultdict(list)
    for each in judged:
        by_task[each.trajectory.task.id].append(each)
    groups: list[RolloutGroup] = []
    for one in scheduled:
        members = by_task[one.task.id]
        if members:
            taught = signals(members)
            groups.append(RolloutGroup(one, tuple(members), taught.accuracy, taught))
    return groups
