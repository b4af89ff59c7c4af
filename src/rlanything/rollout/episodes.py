"""Episodes: an agent answers, the environments react, until every episode has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rlanything.domains.base import Episode, EpisodeError, Observation, StepResult
from rlanything.records import Completion, Step, Task, Trajectory
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive

CRASHED = Observation("The environment failed at this response: the episode is lost.")


class Agent(Protocol):
    """An agent that acts in episodes: the policy, or a baseline."""

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]: ...

    def release_cache(self) -> None:
        """Forgets what was remembered of the episodes: all have ended."""
        ...


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """An episode to be played."""

    id: str
    task: Task
    seed: int


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The results of the attempts."""

    trajectories: tuple[Trajectory, ...]
    """In the order of the attempts; those that could not be played are missing."""
    failures: tuple[EpisodeError, ...]
    """Of those that could not be played."""
    unplayable: tuple[Task, ...]
    """The task of each of these."""
    crashes: tuple[EpisodeError, ...] = ()
    """Of those that a response ended by a fault: they are lost, and among the trajectories."""


def rollout(
    agent: Agent,
    pool: EnvironmentPool,
    attempts: Sequence[RolloutRequest],
    max_steps: int,
    parallel_episodes: int,
    on_episodes: Callable[[int], None] | None = None,
) -> Rollouts:
    """Plays all attempts, `parallel_episodes` at a time; one that reaches `max_steps` has failed.

    An environment's fault costs its own episode only."""
    trajectories: list[Trajectory] = []
    failures: list[EpisodeError] = []
    unplayable: list[Task] = []
    crashes: list[EpisodeError] = []
    for start in range(0, len(attempts), parallel_episodes):
        chunk = attempts[start : start + parallel_episodes]
        played = _play(agent, pool, chunk, max_steps, on_episodes, crashes)
        for attempt, ended in zip(chunk, played, strict=True):
            if isinstance(ended, EpisodeError):
                failures.append(ended)
                unplayable.append(attempt.task)
            else:
                trajectories.append(ended)
    agent.release_cache()
    return Rollouts(tuple(trajectories), tuple(failures), tuple(unplayable), tuple(crashes))


def _play(
    agent: Agent,
    pool: EnvironmentPool,
    attempts: Sequence[RolloutRequest],
    max_steps: int,
    on_episodes: Callable[[int], None] | None,
    crashes: list[EpisodeError],
) -> list[Trajectory | EpisodeError]:
    ended: dict[int, Trajectory | EpisodeError] = {}
    live: dict[int, Episode] = {}
    opened = pool.reset([attempt.task for attempt in attempts])
    for i, (attempt, first) in enumerate(zip(attempts, opened, strict=True)):
        if isinstance(first, EpisodeError):
            ended[i] = first
        else:
            live[i] = Episode(attempt.id, attempt.task, first)
    while live:
        indices = list(live)
        seeds = [derive(attempts[i].seed, len(live[i].steps)) for i in indices]
        completions = dict(
            zip(indices, agent.respond([live[i] for i in indices], seeds), strict=True)
        )
        results = pool.step({i: completions[i].answer for i in indices})
        for i in indices:
            result = results[i]
            if isinstance(result, EpisodeError) and result.lost:
                crashes.append(result)
                result = StepResult(CRASHED, None, valid=False, outcome=-1)
            outcome = _advance(live[i], completions[i], result, max_steps)
            if outcome is not None:
                ended[i] = outcome
                del live[i]
                pool.forget(i)
                if on_episodes is not None:
                    on_episodes(1)
    return [ended[i] for i in range(len(attempts))]


def _advance(
    episode: Episode, completion: Completion, result: StepResult | EpisodeError, max_steps: int
) -> Trajectory | EpisodeError | None:
    """Records a step; returns what the episode ended as, or None while it goes on."""
    if isinstance(result, EpisodeError):
        return result
    step = Step(
        observation=episode.observation.text,
        completion=completion,
        action=result.action,
        valid=result.valid,
        next_observation=result.observation.text,
        image=episode.observation.image.name if episode.observation.image else None,
    )
    episode.steps.append(step)
    episode.observation = result.observation
    if result.outcome is None and len(episode.steps) < max_steps:
        return None
    return Trajectory(
        episode.id, episode.task, tuple(episode.steps), result.outcome or -1, result.reward
    )
