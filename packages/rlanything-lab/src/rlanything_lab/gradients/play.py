"""An iteration of a run, played again: its loop begins from the weights and tasks that the
iteration began with, takes as many tasks as are asked for, and trains nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlanything.algorithm.curriculum import Pool
from rlanything.cluster.open import environment_workers
from rlanything.config.cluster import ClusterConfig
from rlanything.config.recipe import Recipe, RecipeError
from rlanything.domains.base import Domain
from rlanything.experience import Experience
from rlanything.loop import Loop
from rlanything.progress import Progress
from rlanything.roles.adapter import NullAdapter
from rlanything.roles.judges.panel import JudgePanel
from rlanything.rollout.groups import RolloutGroup, ScheduledTask
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import RunComponents, build_components, new_pool, pool_worlds
from rlanything.runs.checkpoint import checkpoint_name, load_pool, problems, saved_iterations
from rlanything.runs.paths import CHECKPOINTS, run_path
from rlanything.runs.target import RunTarget


@dataclass(frozen=True, slots=True)
class PlayedIteration:
    """The rollouts of an iteration, with the models as they were before its update."""

    iteration: int
    recipe: Recipe
    pool: Pool
    components: RunComponents
    judges: JudgePanel
    groups: Sequence[RolloutGroup]
    """Groups that train: original tasks, adapted tasks, and adapted tasks that were added."""
    original: int
    """Number of groups of original tasks."""
    sampled: int
    """Number of groups before the added ones: those that the loop itself would play."""


def measured_recipe(recipe: Recipe) -> Recipe:
    """Returns a run's recipe without seats, staleness, new candidates and KL terms: their gradient
    is no part of Eq. 1."""
    changes = {
        "cluster": ClusterConfig(),
        "loop": recipe.loop.model_copy(update={"max_staleness": 0}),
        "curriculum": recipe.curriculum.model_copy(update={"adapt_tasks": False}),
    }
    changed = recipe.model_copy(update=changes)
    for name, role in recipe.trained_roles.items():
        no_kl = {"kl_weight": 0.0, "reference_kl_weight": 0.0}
        changed = changed.with_role(name, role.model_copy(update=no_kl))
    return changed


def kept_iterations(run: Path, progress: Progress) -> list[int]:
    """Returns the finished iterations whose first weights are there."""
    saved = saved_iterations(run_path(run, CHECKPOINTS))
    last = max(saved, default=0)
    kept = [i for i in range(1, last + 1) if i == 1 or i - 1 in saved]
    if not kept:
        raise RecipeError(f"{run} has no checkpoint: let it finish an iteration")
    if len(kept) < last:
        progress.log(
            f"{last - len(kept)} of {last} iterations are left out, because the checkpoint before "
            "them is gone: train with checkpoints.every=1"
        )
    return kept


def play(
    run: Path,
    recipe: Recipe,
    domain: Domain,
    iteration: int,
    rollouts: int,
    images: Path,
    progress: Progress,
) -> PlayedIteration:
    """Plays an iteration of a run with at least `rollouts` rollouts, or one group of each task if
    the pool has fewer. Adapted tasks are added to those that were sampled, as many at most."""
    checkpoint = None
    if iteration > 1:
        checkpoint = run_path(run, CHECKPOINTS, checkpoint_name(iteration - 1))
        if damage := problems(checkpoint):
            raise RecipeError(f"{run}: {'; '.join(damage)}: take it from a copy, or delete it")
    pool = new_pool(recipe, domain) if checkpoint is None else load_pool(checkpoint)
    pool.worlds = pool_worlds(recipe, domain)
    pool.under_way.clear()
    components = build_components(
        recipe, domain, checkpoint, day=RunTarget(str(run)).day, images=images
    )
    count = min(-(-rollouts // recipe.loop.rollouts_per_task), len(pool.slots))
    loop = recipe.loop.model_copy(update={"tasks_per_iteration": count})
    recipe = recipe.model_copy(update={"loop": loop})
    judges = components.judges if recipe.reads_scores else JudgePanel({})
    with EnvironmentPool(
        recipe.domain.name,
        recipe.domain.options,
        environment_workers(recipe.environment),
        recipe.environment.timeout_seconds,
        images if domain.capabilities.shows_images else None,
    ) as environments:
        experience = MoreAdapted(recipe, pool, components.train_policy, environments, progress)
        result = Loop(
            recipe=recipe,
            domain=domain,
            pool=pool,
            experience=experience,
            judges=judges,
            adapter=NullAdapter(),
            learners={},
            engines=components.engines,
            progress=progress,
        ).iterate(iteration)
    by_slot = {slot.id: slot for slot in pool.slots}

    def order(group: RolloutGroup) -> tuple[bool, bool]:
        scheduled = group.scheduled
        adapted = scheduled.task != by_slot[scheduled.slot].root
        return adapted, scheduled.slot in experience.added

    groups = sorted(result.trainable_groups, key=order)
    places = [order(group) for group in groups]
    original = places.count((False, False))
    sampled = original + places.count((True, False))
    return PlayedIteration(iteration, recipe, pool, components, judges, groups, original, sampled)


class MoreAdapted(Experience):
    """The experience of an iteration, and rollouts of adapted tasks that were not sampled: a sample
    may have too few of them to compare with."""

    added: frozenset[str] = frozenset()
    """Slots of the added tasks."""

    def _schedule(self, iteration: int, count: int) -> list[ScheduledTask]:
        scheduled = super()._schedule(iteration, count)
        chosen = {one.slot for one in scheduled}
        more = [
            ScheduledTask(slot.id, slot.active, candidate=False, begun=iteration)
            for slot in self.pool.slots
            if slot.usable and slot.active != slot.root and slot.id not in chosen
        ][:count]
        self.added = frozenset(one.slot for one in more)
        return [*scheduled, *more]
