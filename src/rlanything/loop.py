"""The closed loop: Algorithms 1 and 2 of the paper (arXiv 2602.02488)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlanything.algorithm.agreement import Agreements, adapted
from rlanything.algorithm.curriculum import Candidate, Pool
from rlanything.config.recipe import Recipe
from rlanything.domains.base import Domain, EpisodeError
from rlanything.engines.base import Engine
from rlanything.experience import Experience
from rlanything.learning.base import Statistics, Updates
from rlanything.progress import Progress
from rlanything.records import Sample
from rlanything.roles.adapter import Adapter, NullAdapter, Proposal, RewriteRequest, propose
from rlanything.roles.judges.judging import Judging
from rlanything.roles.judges.panel import JudgePanel
from rlanything.rollout.episodes import Rollouts
from rlanything.rollout.groups import RolloutGroup, ScheduledTask, grouped, shuffled
from rlanything.seeds import derive


@dataclass(slots=True)
class IterationResult:
    """The results of one iteration."""

    number: int
    """The iteration, counted from 1."""
    acting: str = "policy"
    """Name of the first role that acts."""
    groups: list[RolloutGroup] = field(default_factory=list)
    failures: tuple[EpisodeError, ...] = ()
    """Errors of rollouts that could not be played to their end (infrastructure, not the policy)."""
    crashes: tuple[EpisodeError, ...] = ()
    """Errors that the policy's own response caused; these episodes count as losses."""
    lambdas: dict[str, float] = field(default_factory=dict)
    """lambda of Eq. 1 by judge; empty unless it is adaptive."""
    replays: dict[str, int] = field(default_factory=dict)
    """Counts of `Experience.measure`; empty unless the judges' reward needs gains."""
    accepted: list[str] = field(default_factory=list)
    """Slots whose candidate became their active task."""
    rejected: list[str] = field(default_factory=list)
    quarantined: dict[str, str] = field(default_factory=dict)
    """Tasks that killed their workers, and how; they are not played again."""
    proposals: list[Proposal] = field(default_factory=list)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    """Samples of each role that learns, by its name."""
    statistics: dict[str, Statistics] = field(default_factory=dict)
    """Statistics of each role's update, by its name."""

    @property
    def trainable_groups(self) -> list[RolloutGroup]:
        """The groups that may train: no rejected candidate's, and none with one rollout left."""
        accepted, groups = self.accepted, [group for group in self.groups if group.compares]
        return [g for g in groups if not g.scheduled.candidate or g.scheduled.slot in accepted]


@dataclass(slots=True)
class Loop:
    """The closed loop over objects: experience, judges, adapter, learners, and the pool of tasks.

    It gives engines the new weights after every update."""

    recipe: Recipe
    domain: Domain
    pool: Pool
    experience: Experience
    judges: JudgePanel
    """The judges; empty if training does not depend on scores."""
    adapter: Adapter
    learners: Mapping[str, Updates]
    """Learner of each role that learns, by its name."""
    engines: Sequence[Engine]
    """Engines of all models that run here, in particular of those that learn."""
    progress: Progress
    agreements: dict[int, Agreements] = field(default_factory=dict)
    """Agreements of scores with outcomes by iteration, if lambda is adaptive."""

    def iterate(self, iteration: int) -> IterationResult:
        """Runs one iteration; deterministic for the same iteration, pool and weights, unless
        `loop.max_staleness` is above 0."""
        for engine in self.engines:  # engines of a resumed run have empty caches, so these must too
            engine.sync_weights()
        result = IterationResult(iteration, self.recipe.acting)
        seeds = {name: derive(self.recipe.seed, iteration, name) for name in self.judges.judges}
        with Judging(self.judges, seeds) as judging:
            scheduled, played = self.experience.collect(iteration, judging.early)
            result.groups = self._judge(judging, scheduled, played, result)
        self._resolve_candidates(scheduled, result)
        self._adapt_tasks(result)
        self._train(result)
        for engine in self.engines:
            engine.sync_weights()
        return result

    def _judge(
        self,
        judging: Judging,
        scheduled: Sequence[ScheduledTask],
        played: Rollouts,
        result: IterationResult,
    ) -> list[RolloutGroup]:
        """Judges the rollouts, with the signals of Eq. 1 and Eq. 2."""
        result.failures, result.crashes = played.failures, played.crashes
        count = self.judges.samples * sum(len(one.steps) for one in played.trajectories)
        with self.progress.phase("judgements", count, "judgements") as advance:
            judged = judging.finish(played.trajectories, advance)
        feedback, panel = self.recipe.feedback, self.judges
        if feedback.policy_lambda_control == "adaptive":
            self.agreements[result.number] = panel.agreements(judged)
            result.lambdas = adapted(feedback.policy_lambda, self.agreements, result.number)
        if (options := self.recipe.replays) is not None:
            judged, result.replays = self.experience.measure(result.number, judged, options)
        settings = self.pool.feedback_by_world(feedback)
        return grouped(
            scheduled,
            judged,
            lambda group: panel.signals(group, settings(group), result.lambdas),
            [task.id for task in played.unplayable],
        )

    def _resolve_candidates(
        self, scheduled: Sequence[ScheduledTask], result: IterationResult
    ) -> None:
        """Accepts or rejects candidates by the accuracy of their rollouts. A candidate is only
        accepted if it would be whichever way its missing rollouts had ended."""
        groups = {group.scheduled.task.id: group for group in result.groups}
        objections = {
            g.scheduled.task.id: self.domain.objection(g.scheduled.task, g.trajectories)
            for g in result.groups
            if g.scheduled.candidate
        }
        result.quarantined = {f.task_id: f.reason for f in result.failures if f.deadly}
        for item in scheduled:
            if not item.candidate and item.task.id in groups:
                self.pool.record(item.slot, item.task.id, groups[item.task.id].accuracy)
        for item in scheduled:
            if item.task.id in result.quarantined:
                reason = result.quarantined[item.task.id]
                self.pool.quarantine(item.slot, item.task.id, reason, result.number)
                result.rejected += [item.slot] if item.candidate else []
            elif item.candidate:
                # A candidate that could not be played counts as never solved.
                group = groups.get(item.task.id)
                lowest, highest = group.bounds if group else (0.0, 0.0)
                objection = objections.get(item.task.id)
                accepted = self.pool.settle(item.slot, lowest, result.number, objection, highest)
                (result.accepted if accepted else result.rejected).append(item.slot)

    def _adapt_tasks(self, result: IterationResult) -> None:
        """Requests candidates for active tasks outside the window, based on the judge's
        criticism."""
        settings = self.recipe.curriculum
        asked = settings.adapt_tasks and not isinstance(self.adapter, NullAdapter)
        if settings.adapt_tasks and not asked and result.number == 1:
            self.progress.log("tasks stay as they are: this domain cannot rewrite them")
        requests: list[RewriteRequest] = []
        parents: list[float] = []
        for group in result.groups:
            slot = self.pool.slot(group.scheduled.slot)
            wanted = group.direction(*self.pool.bounds(slot.id))
            # Only for sampled tasks (Algorithm 2, line 28), not for a candidate just accepted.
            sampled = not group.scheduled.candidate and group.scheduled.task == slot.active
            if asked and wanted and slot.usable and sampled:
                seen = tuple(one.first_view for one in group.judged)
                request = RewriteRequest(
                    slot.id, slot.root, slot.active, wanted, seen, tried=slot.tried
                )
                requests.append(request)
                parents.append(group.bounds[wanted == "easier"])
        with self.progress.phase("proposals", len(requests), "tasks") as advance:
            seed = derive(self.recipe.seed, result.number, self.recipe.rewriting)
            result.proposals = propose(self.adapter, requests, result.number, seed)
            advance(len(requests))
        for request, proposal, accuracy in zip(requests, result.proposals, parents, strict=True):
            if proposal.task is not None:
                candidate = Candidate(
                    proposal.task, request.direction, accuracy, proposal.critics, result.number
                )
                self.pool.propose(request.slot, candidate)

    def _train(self, result: IterationResult) -> None:
        """Updates every learner on all rollouts except those of rejected candidates."""
        seed = derive(self.recipe.seed, result.number, "minibatches")
        groups, roles = result.trainable_groups, self.recipe.trained_roles
        for role, learner in self.learners.items():
            samples = [
                (group.scheduled.task.id, sample)
                for group in groups
                for sample in group.samples(role, result.acting)
            ]
            if self.recipe.loop.shuffle_advantages:
                samples = shuffled(samples, seed)
            total = len(samples) * roles[role].epochs
            with self.progress.phase(f"{role} update", total, "samples") as advance:
                result.statistics[role] = learner.update(samples, seed, advance)
            result.samples[role] = [sample for _, sample in samples]
