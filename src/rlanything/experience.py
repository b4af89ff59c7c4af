"""The experience of an iteration: which tasks are rolled out, and which groups it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlanything.algorithm.curriculum import Pool, Slot
from rlanything.algorithm.rewards import ReplayOptions
from rlanything.config.recipe import Recipe
from rlanything.progress import Progress
from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.rollout.episodes import Agent, LiveEpisodes, RolloutRequest, Rollouts, rollout
from rlanything.rollout.groups import ScheduledTask
from rlanything.rollout.queue import GroupQueue
from rlanything.rollout.replays import Replayer, advantage, disputed
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive


@dataclass(slots=True)
class Experience:
    """The rollouts of a run's tasks by its policy."""

    recipe: Recipe
    pool: Pool
    policy: Agent
    environments: EnvironmentPool
    progress: Progress
    _queue: GroupQueue | None = None
    """Groups under way across iterations, with `loop.max_staleness` above 0."""

    def collect(
        self,
        iteration: int,
        on_trajectories: Callable[[Sequence[Trajectory]], None] | None = None,
    ) -> tuple[list[ScheduledTask], Rollouts]:
        """Returns the tasks whose groups an iteration takes, and their rollouts. `on_trajectories`
        is called with episodes as they end, unless they may outlast the iteration."""
        loop, environment = self.recipe.loop, self.recipe.environment
        if loop.max_staleness:
            return self._play_on(iteration)
        scheduled = self._schedule(iteration, loop.tasks_per_iteration)
        requests = [request for entry in scheduled for request in self._requests(entry)]
        with self.progress.phase("rollouts", len(requests), "episodes") as advance:
            played = rollout(
                self.policy,
                self.environments,
                requests,
                loop.max_steps,
                environment.parallel_episodes,
                advance,
                environment.lockstep,
                on_trajectories,
            )
        return scheduled, played

    def measure(
        self, iteration: int, judged: Sequence[JudgedTrajectory], options: ReplayOptions
    ) -> tuple[list[JudgedTrajectory], dict[str, int]]:
        """Returns the trajectories with the gains of the steps that are disputed most, measured by
        replays, and counts: `steps` that were played, steps `measured`, gains that `changed` V."""
        seed = derive(self.recipe.seed, iteration, "replays")
        places = disputed(judged, self.recipe.feedback.judge_window, options.steps, seed)
        states = [(judged[row].trajectory, i + after) for row, i in places for after in (0, 1)]
        replayer = Replayer(
            self.policy,
            self.environments,
            options.replays,
            self.recipe.loop.max_steps,
            self.recipe.environment.parallel_episodes,
            self.recipe.environment.lockstep,
        )
        count = options.replays * sum(i < len(one.steps) for one, i in states)
        with self.progress.phase("replays", count, "episodes") as advance:
            values = replayer.values(states, seed, advance)
        gains, known = [[0.0] * len(one.judgements) for one in judged], 0
        for (row, i), before, after in zip(places, values[::2], values[1::2], strict=True):
            if before is not None and after is not None:
                gains[row][i], _ = advantage(before, after)
                known += 1
        changed = sum(gains[row][i] != 0 for row, i in places)
        measured = [replace(one, gains=tuple(g)) for one, g in zip(judged, gains, strict=True)]
        return measured, {"steps": replayer.steps, "measured": known, "changed": changed}

    def finish(self) -> None:
        """Plays the episodes under way to their end, before others can use the environments."""
        if self._queue is not None:
            self._queue.finish()

    def _schedule(self, iteration: int, count: int) -> list[ScheduledTask]:
        """Returns the pending candidates and a sample of `count` active tasks, without those under
        way."""
        rng = np.random.default_rng(derive(self.recipe.seed, iteration, "tasks"))
        sampled = self.pool.sample(count, rng)
        pending = [slot for slot in self.pool.pending() if slot.id not in self.pool.under_way]
        return [_scheduled(slot, iteration) for slot in (*pending, *sampled)]

    def _requests(self, scheduled: ScheduledTask) -> list[RolloutRequest]:
        """Returns the rollouts of a task."""
        seed, t, task = self.recipe.seed, scheduled.begun, scheduled.task
        return [
            RolloutRequest(f"{t}/{task.id}/{g}", task, derive(seed, t, task.id, g))
            for g in range(self.recipe.loop.rollouts_per_task)
        ]

    def _play_on(self, iteration: int) -> tuple[list[ScheduledTask], Rollouts]:
        """Begins rollouts, and takes those groups that have ended, whenever they began; the last
        iteration takes all."""
        loop, under_way = self.recipe.loop, self.pool.under_way
        if (queue := self._queue) is None:
            parallel = self.recipe.environment.parallel_episodes
            episodes = LiveEpisodes(
                self.policy, self.environments, loop.max_steps, parallel, lockstep=False
            )
            self._queue = queue = GroupQueue(episodes)
            for slot, begun in under_way.items():  # of a resumed run
                entry = _scheduled(self.pool.slot(slot), begun)
                queue.begin(entry, self._requests(entry))
        active = sum(self.pool.slot(slot).pending is None for slot in under_way)
        most = 1 + min(loop.max_staleness, loop.iterations - iteration)
        count = max(0, most * loop.tasks_per_iteration - active)
        for entry in self._schedule(iteration, count):
            under_way[entry.slot] = iteration
            queue.begin(entry, self._requests(entry))
        oldest = iteration - (0 if iteration == loop.iterations else loop.max_staleness)
        with self.progress.phase("rollouts", loop.tasks_per_iteration, "tasks") as advance:
            taken, played = queue.take(loop.tasks_per_iteration, oldest, advance)
        self.policy.release_cache()
        for entry in taken:
            del under_way[entry.slot]
        return taken, played


def _scheduled(slot: Slot, begun: int) -> ScheduledTask:
    """Returns a slot's candidate, or its active task if it has none, to be rolled out."""
    task = slot.active if slot.pending is None else slot.pending.task
    return ScheduledTask(slot.id, task, slot.pending is not None, begun)
