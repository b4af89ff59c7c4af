"""This library's side: rollouts and policy update as its loop makes them, without judge and
adapter."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlanything.algorithm.signals import task_signals
from rlanything.config.recipe import Recipe
from rlanything.learning.shares import arrange
from rlanything.records import JudgedTrajectory, Sample, Task, Trajectory
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.groups import RolloutGroup, ScheduledTask, grouped
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import RunComponents
from rlanything.seeds import derive

WEIGHTLESS = 1e-8
"""The advantage of a step that would not train: it moves nothing and costs what others cost."""

Tagged = list[tuple[str, Sample]]


@dataclass(frozen=True, slots=True)
class OwnIteration:
    """Seconds and counts of one iteration of this library."""

    rollout_seconds: float
    update_seconds: float
    """Advantages and update, on the steps whose advantage is not 0."""
    full_update_seconds: float
    """The same on all steps of all episodes."""
    trajectories: Sequence[Trajectory]
    trained: Tagged
    trained_in_full: Tagged


class OwnAgent:
    """Policy, engine and learner of a recipe."""

    def __init__(
        self, recipe: Recipe, components: RunComponents, environments: EnvironmentPool
    ) -> None:
        self._recipe = recipe
        self._components = components
        self._environments = environments
        self._threads = torch.get_num_threads()

    def iterate(self, tasks: Sequence[Task], number: int) -> OwnIteration:
        """Plays each task's rollouts once and trains on them twice. Raises RuntimeError where an
        environment fails: the comparison would not be one."""
        recipe, policy = self._recipe, self._components.trained_models["policy"]
        others = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        requests = [
            RolloutRequest(f"{number}/{task.id}/{g}", task, derive(recipe.seed, number, task.id, g))
            for task in tasks
            for g in range(recipe.loop.rollouts_per_task)
        ]
        clock = _Clock()
        played = rollout(
            self._components.train_policy,
            self._environments,
            requests,
            recipe.loop.max_steps,
            recipe.environment.parallel_episodes,
            lockstep=recipe.environment.lockstep,
        )
        rollout_seconds = clock.lap()
        if played.failures or played.crashes:
            raise RuntimeError("an episode could not be played")
        seed = derive(recipe.seed, number, "minibatches")
        chosen = trained_steps(tasks, played.trajectories, recipe, in_full=False)
        policy.learner.update(chosen, seed)
        policy.engine.sync_weights()
        update_seconds = clock.lap()
        every = trained_steps(tasks, played.trajectories, recipe, in_full=True)
        policy.learner.update(every, seed)
        policy.engine.sync_weights()
        full_update_seconds = clock.lap()
        torch.set_num_threads(others)
        return OwnIteration(
            rollout_seconds,
            update_seconds,
            full_update_seconds,
            played.trajectories,
            chosen,
            every,
        )

    def computed_tokens(self, samples: Tagged) -> int:
        """Returns the tokens that an update on these samples computes."""
        return sum(
            work.batch.computed_tokens
            for part in arrange(samples, self._recipe.policy, 0)
            for work in part
        )


def trained_steps(
    tasks: Sequence[Task], trajectories: Sequence[Trajectory], recipe: Recipe, in_full: bool
) -> Tagged:
    """Returns (task id, sample) pairs: a sample for each step whose advantage is not 0, from the
    outcomes alone; `in_full`, one for every step of every episode."""
    settings = recipe.feedback.model_copy(update={"policy_reward": "outcome"})
    groups = grouped(
        [ScheduledTask(task.id, task, False) for task in tasks],
        [JudgedTrajectory(each, ((),) * len(each.steps)) for each in trajectories],
        lambda members: task_signals(
            [member.trajectory.outcome for member in members],
            [member.scores for member in members],
            settings,
        ),
    )
    if not in_full:
        return [(g.scheduled.task.id, sample) for g in groups for sample in g.samples("policy")]
    return [(g.scheduled.task.id, sample) for g in groups for sample in _every_step(g)]


def _every_step(group: RolloutGroup) -> list[Sample]:
    return [
        Sample(f"{trajectory.id}/{i}", step.completion, float(advantage) or WEIGHTLESS)
        for trajectory, advantages in zip(group.trajectories, group.signals.policy, strict=True)
        for i, (step, advantage) in enumerate(zip(trajectory.steps, advantages, strict=True))
    ]


class _Clock:
    def __init__(self) -> None:
        self._begun = time.perf_counter()

    def lap(self) -> float:
        """Returns the seconds since it was asked last."""
        before, self._begun = self._begun, time.perf_counter()
        return self._begun - before
