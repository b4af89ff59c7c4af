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
from rlanything.progress import View
from rlanything.records import Sample
from rlanything.roles.adapter import Adapter, Ask, Proposal
from rlanything.roles.judges.llm import Critic
from rlanything.rollout.episodes import Agent, Attempt, rollout
from rlanything.rollout.groups import Entry, Group, grouped, shuffled
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive


@dataclass(slots=True)
class Turn:
    """What one iteration did, for the store and for those who watch."""

    iteration: int
    groups: list[Group] = field(default_factory=list)
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
    def teaching(self) -> list[Group]:
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
    judge: Critic
    adapter: Adapter
    policy_learner: Updates
    judge_learner: Updates | None
    """None where no judge learns."""
    environments: EnvironmentPool
    view: View

    def iterate(self, iteration: int) -> Turn:
        turn = Turn(iteration)
        entries = self._choose(iteration)
        turn.groups = self._experience(entries, turn)
        self._settle(entries, turn)
        self._adapt_tasks(turn)
        self._train(turn)
        return turn

    def _choose(self, iteration: int) -> list[Entry]:
        """Every pending candidate, and a sample of the active tasks."""
        rng = np.random.default_rng(derive(self.recipe.seed, iteration, "tasks"))
        sampled = self.pool.sample(self.recipe.loop.tasks_per_iteration, rng)
        return [
            *(Entry(s.id, s.pending.task, True) for s in self.pool.pending() if s.pending),
            *(Entry(s.id, s.active, False) for s in sampled),
        ]

    def _experience(self, entries: Sequence[Entry], turn: Turn) -> list[Group]:
        """Rollouts and their judgements, with the signals of Eq. 1 and Eq. 2."""
        seed, t, loop = self.recipe.seed, turn.iteration, self.recipe.loop
        attempts = [
            Attempt(f"{t}/{entry.task.id}/{g}", entry.task, derive(seed, t, entry.task.id, g))
            for entry in entries
            for g in range(loop.rollouts_per_task)
        ]
        with self.view.phase("rollouts", len(attempts), "episodes") as progress:
            played = rollout(
                self.policy,
                self.environments,
                attempts,
                loop.max_steps,
                self.recipe.environment.parallel_episodes,
                progress,
            )
        turn.failures = played.failures
        steps = sum(len(trajectory.steps) for trajectory in played.trajectories)
        count = steps * self.judge.samples
        with self.view.phase("judgements", count, "judgements") as progress:
            judged = self.judge.judge(played.trajectories, derive(seed, t, "judge"), progress)
        settings = self.recipe.feedback.settings()
        return grouped(entries, judged, lambda group: self.judge.signals(group, settings))

    def _settle(self, entries: Sequence[Entry], turn: Turn) -> None:
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
                self.pool.quarantine(entry.slot, entry.task.id, reason, turn.iteration)
                turn.rejected += [entry.slot] if entry.candidate else []
            elif entry.candidate:
                # A candidate that could not be played at all was solved by nobody.
                accuracy = accuracies.get(entry.task.id, 0.0)
                accepted = self.pool.settle(
                    entry.slot, accuracy, turn.iteration, objections.get(entry.task.id)
                )
                (turn.accepted if accepted else turn.rejected).append(entry.slot)

    def _adapt_tasks(self, turn: Turn) -> None:
        """Active tasks outside the window get a candidate, written from the judge's criticism."""
        settings = self.recipe.curriculum
        asks: list[Ask] = []
        for group in turn.groups:
            slot = self.pool.slot(group.entry.slot)
            wanted = direction(group.accuracy, settings.alpha_low, settings.alpha_high)
            if settings.adapt_tasks and wanted and slot.usable and group.entry.task == slot.active:
                asks.append(Ask(slot.id, slot.root, slot.active, wanted, group.failed))
        with self.view.phase("proposals", len(asks), "tasks") as progress:
            seed = derive(self.recipe.seed, turn.iteration, "adapter")
            turn.proposals = self.adapter.propose(asks, turn.iteration, seed)
            progress(len(asks))
        for ask, proposal in zip(asks, turn.proposals, strict=True):
            if proposal.task is not None:
                accuracy = self.pool.slot(ask.slot).accuracy or 0.0
                candidate = Candidate(
                    proposal.task, ask.direction, accuracy, proposal.critics, turn.iteration
                )
                self.pool.propose(ask.slot, candidate)

    def _train(self, turn: Turn) -> None:
        """Both learners, on everything but the rollouts of rejected candidates."""
        seed = derive(self.recipe.seed, turn.iteration, "minibatches")
        policy = [(g.entry.task.id, sample) for g in turn.teaching for sample in g.policy_samples()]
        judge = [(g.entry.task.id, sample) for g in turn.teaching for sample in g.judge_samples()]
        if self.recipe.loop.shuffle_advantages:
            policy, judge = (shuffled(samples, seed) for samples in (policy, judge))
        with self.view.phase("policy update", len(policy), "samples") as progress:
            turn.policy_statistics = self.policy_learner.update(policy, seed, progress)
        turn.policy_samples = [sample for _, sample in policy]
        if self.judge_learner is None:
            return
        with self.view.phase("judge update", len(judge), "samples") as progress:
            turn.judge_statistics = self.judge_learner.update(judge, seed, progress)
        turn.judge_samples = [sample for _, sample in judge]
