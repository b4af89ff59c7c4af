"""The closed loop: a turn makes experience, judges it, and improves policy, judge and tasks by it.

Reads like section 1 of the design; everything else is elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rlanything.algorithm.curriculum import Candidate, Pool, direction
from rlanything.config.recipe import Recipe
from rlanything.domains.base import Domain, EpisodeError
from rlanything.progress import Progress
from rlanything.records import Sample
from rlanything.roles.adapter import Adapter, Proposal, RewriteRequest
from rlanything.roles.judges.llm import Judge
from rlanything.rollout.episodes import Agent, RolloutRequest, rollout
from rlanything.rollout.groups import RolloutGroup, ScheduledTask, grouped, shuffled
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive


@dataclass(slots=True)
class IterationResult:
    """What one iteration did, for the store and for those who watch."""

    number: int
    """The iteration, counted from 1."""
    groups: list[RolloutGroup] = field(default_factory=list)
    failures: tuple[EpisodeError, ...] = ()
    accepted: list[str] = field(default_factory=list)
    """Slots whose candidate became their active task."""
    rejected: list[str] = field(default_factory=list)
    quarantined: dict[str, str] = field(default_factory=dict)
    """Tasks that killed their workers, and how: nobody meets them again."""
    proposals: list[Proposal] = field(default_factory=list)
    policy_samples: list[Sample] = field(default_factory=list)
    judge_samples: list[Sample] = field(default_factory=list)
    policy_statistics: dict[str, float] = field(default_factory=dict)
    judge_statistics: dict[str, float] = field(default_factory=dict)

    @property
    def trainable_groups(self) -> list[RolloutGroup]:
        """The groups that may train: all but those of rejected candidates."""
        return [g for g in self.groups if not g.entry.candidate or g.entry.slot in self.accepted]


class Updates(Protocol):
    """A learner, as far as the loop knows it."""

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> dict[str, float]: ...


@dataclass(slots=True)
class Loop:
    """The three that improve one another, and the pool of tasks between them."""

    recipe: Recipe
    domain: Domain
    pool: Pool
    policy: Agent
    judge: Judge
    adapter: Adapter
    policy_learner: Updates
    judge_learner: Updates | None
    """None where no judge learns."""
    environments: EnvironmentPool
    progress: Progress

    def iterate(self, iteration: int) -> IterationResult:
        turn = IterationResult(iteration)
        entries = self._choose(iteration)
        turn.groups = self._experience(entries, turn)
        self._settle(entries, turn)
        self._adapt_tasks(turn)
        self._train(turn)
        return turn

    def _choose(self, iteration: int) -> list[ScheduledTask]:
        """Every pending candidate, and a sample of the active tasks."""
        rng = np.random.default_rng(derive(self.recipe.seed, iteration, "tasks"))
        sampled = self.pool.sample(self.recipe.loop.tasks_per_iteration, rng)
        return [
            *(ScheduledTask(s.id, s.pending.task, True) for s in self.pool.pending() if s.pending),
            *(ScheduledTask(s.id, s.active, False) for s in sampled),
        ]

    def _experience(
        self, entries: Sequence[ScheduledTask], turn: IterationResult
    ) -> list[RolloutGroup]:
        """Rollouts and their judgements, with the signals of Eq. 1 and Eq. 2."""
        seed, t, loop = self.recipe.seed, turn.number, self.recipe.loop
        attempts = [
            RolloutRequest(
                f"{t}/{entry.task.id}/{g}", entry.task, derive(seed, t, entry.task.id, g)
            )
            for entry in entries
            for g in range(loop.rollouts_per_task)
        ]
        with self.progress.phase("rollouts", len(attempts), "episodes") as advance:
            played = rollout(
                self.policy,
                self.environments,
                attempts,
                loop.max_steps,
                self.recipe.environment.parallel_episodes,
                advance,
            )
        turn.failures = played.failures
        steps = sum(len(trajectory.steps) for trajectory in played.trajectories)
        count = steps * self.judge.samples
        with self.progress.phase("judgements", count, "judgements") as advance:
            judged = self.judge.judge(played.trajectories, derive(seed, t, "judge"), advance)
        settings = self.recipe.feedback.settings()
        return grouped(entries, judged, lambda group: self.judge.signals(group, settings))

    def _settle(self, entries: Sequence[ScheduledTask], turn: IterationResult) -> None:
        """Candidates are accepted or rejected by the accuracy of their rollouts."""
        accuracies = {group.entry.task.id: group.accuracy for group in turn.groups}
        objections = {
            group.entry.task.id: self.domain.objection(
                group.entry.task, [each.trajectory for each in group.judged]
            )
            for group in turn.groups
            if group.entry.candidate
        }
        turn.quarantined = {each.task_id: each.reason for each in turn.failures if each.deadly}
        for entry in entries:
            if not entry.candidate and entry.task.id in accuracies:
                self.pool.record(entry.slot, entry.task.id, accuracies[entry.task.id])
        for entry in entries:
            if entry.task.id in turn.quarantined:
                reason = turn.quarantined[entry.task.id]
                self.pool.quarantine(entry.slot, entry.task.id, reason, turn.number)
                turn.rejected += [entry.slot] if entry.candidate else []
            elif entry.candidate:
                # A candidate that could not be played at all was solved by nobody.
                accuracy = accuracies.get(entry.task.id, 0.0)
                accepted = self.pool.settle(
                    entry.slot, accuracy, turn.number, objections.get(entry.task.id)
                )
                (turn.accepted if accepted else turn.rejected).append(entry.slot)

    def _adapt_tasks(self, turn: IterationResult) -> None:
        """Active tasks outside the window get a candidate, written from the judge's criticism."""
        settings = self.recipe.curriculum
        asks: list[RewriteRequest] = []
        for group in turn.groups:
            slot = self.pool.slot(group.entry.slot)
            wanted = direction(group.accuracy, settings.alpha_low, settings.alpha_high)
            if settings.adapt_tasks and wanted and slot.usable and group.entry.task == slot.active:
                asks.append(RewriteRequest(slot.id, slot.root, slot.active, wanted, group.failed))
        with self.progress.phase("proposals", len(asks), "tasks") as advance:
            seed = derive(self.recipe.seed, turn.number, "adapter")
            turn.proposals = self.adapter.propose(asks, turn.number, seed)
            advance(len(asks))
        for ask, proposal in zip(asks, turn.proposals, strict=True):
            if proposal.task is not None:
                accuracy = self.pool.slot(ask.slot).accuracy or 0.0
                candidate = Candidate(
                    proposal.task, ask.direction, accuracy, proposal.critics, turn.number
                )
                self.pool.propose(ask.slot, candidate)

    def _train(self, turn: IterationResult) -> None:
        """Both learners, on everything but the rollouts of rejected candidates."""
        seed = derive(self.recipe.seed, turn.number, "minibatches")
        policy = [
            (g.entry.task.id, sample)
            for g in turn.trainable_groups
            for sample in g.policy_samples()
        ]
        judge = [
            (g.entry.task.id, sample) for g in turn.trainable_groups for sample in g.judge_samples()
        ]
        if self.recipe.loop.shuffle_advantages:
            policy, judge = (shuffled(samples, seed) for samples in (policy, judge))
        with self.progress.phase("policy update", len(policy), "samples") as advance:
            turn.policy_statistics = self.policy_learner.update(policy, seed, advance)
        turn.policy_samples = [sample for _, sample in policy]
        if self.judge_learner is None:
            return
        with self.progress.phase("judge update", len(judge), "samples") as advance:
            turn.judge_statistics = self.judge_learner.update(judge, seed, advance)
        turn.judge_samples = [sample for _, sample in judge]
