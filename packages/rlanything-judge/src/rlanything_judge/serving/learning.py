"""A served judge that learns from the outcomes of the episodes it judged (Eq. 2)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.roles.judges.base import OnJudgements, StepJudge
from rlanything.rollout.groups import RolloutGroup, ScheduledTask, grouped
from rlanything.seeds import derive
from rlanything_judge.learning import LearningJudgeRun
from rlanything_judge.serving.messages import EpisodeName

MOST_REMEMBERED = 16384
"""Judged episodes that wait for their outcome; beyond that the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class TakenOutcomes:
    """The answer to reported outcomes."""

    unknown: list[str]
    """Trajectory ids of episodes that were not judged here, or already have an outcome."""
    waiting: int
    """Number of episodes with an outcome, for the next update to learn from."""
    updates: int
    """Number of updates of the judge so far."""


class LearningJudge(StepJudge):
    """A judge that remembers the episodes it judged, and is updated once enough have an outcome.

    Judging and learning take turns: the caller that reports the last outcome waits for the
    update."""

    def __init__(self, run: LearningJudgeRun, every: int, log: Callable[[str], None]) -> None:
        """`every`: number of episodes with outcomes per update."""
        self._run = run
        self._every = every
        self._log = log
        self._turn = threading.Lock()
        self._memory = threading.Lock()
        self._judged: OrderedDict[EpisodeName, JudgedTrajectory] = OrderedDict()
        self._ended: list[JudgedTrajectory] = []
        self.samples = run.judge.samples

    @property
    def updates(self) -> int:
        """Number of updates of the judge so far."""
        return self._run.updates

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        seed: int,
        on_judgements: OnJudgements | None = None,
    ) -> list[JudgedTrajectory]:
        """Returns the trajectories with m judgements for every step, and remembers them."""
        with self._turn:
            judged = self._run.judge.judge(trajectories, seed, on_judgements)
        with self._memory:
            for one in judged:
                name = (one.trajectory.task.id, one.trajectory.id)
                self._judged[name] = one
                self._judged.move_to_end(name)
            while len(self._judged) > MOST_REMEMBERED:
                self._judged.popitem(last=False)
        return judged

    def take(self, outcomes: Mapping[EpisodeName, int]) -> TakenOutcomes:
        """Takes outcomes, 1 or -1, by episode name, and updates the judge once there are enough.
        Raises errors of the learner and of the checkpoint; their episodes are not used again."""
        unknown: list[str] = []
        with self._memory:
            for name, outcome in outcomes.items():
                one = self._judged.pop(name, None)
                if one is None:
                    unknown.append(name[1])
                    continue
                self._ended.append(
                    replace(one, trajectory=replace(one.trajectory, outcome=outcome))
                )
        with self._turn:
            while batch := self._batch():
                self._update(batch)
        return TakenOutcomes(unknown, len(self._ended), self.updates)

    def _batch(self) -> list[JudgedTrajectory]:
        """Returns the episodes of the next update; [] if there are too few."""
        with self._memory:
            if len(self._ended) < self._every:
                return []
            batch, self._ended = self._ended, []
            return batch

    def _update(self, batch: Sequence[JudgedTrajectory]) -> None:
        run = self._run
        groups = self._groups(batch)
        samples = [(g.scheduled.slot, sample) for g in groups for sample in g.samples(run.role)]
        seed = derive(run.recipe.seed, run.updates + 1, "minibatches")
        try:
            run.trained.learner.update(samples, seed)
        finally:  # a failed update may have moved some weights
            run.trained.engine.sync_weights()
        run.keep()
        won = sum(one.trajectory.outcome == 1 for one in batch)
        self._log(
            f"update {run.updates}: {len(samples)} judgements of {len(batch)} episodes of "
            f"{len(groups)} tasks, {won} won"
        )

    def _groups(self, batch: Sequence[JudgedTrajectory]) -> list[RolloutGroup]:
        settings = self._run.recipe.feedback.with_lambda(0)  # no policy learns here
        tasks = {one.trajectory.task.id: one.trajectory.task for one in batch}
        scheduled = [ScheduledTask(name, task, candidate=False) for name, task in tasks.items()]
        return grouped(scheduled, batch, lambda group: self._run.judge.signals(group, settings))
