"""Values of states, measured by replays.

V of a state is the share of K episodes that the policy wins when it continues from there (VinePPO,
arXiv 2410.01679, section 4). Environments repeat exactly, so an episode can be played again up to
any of its steps. A step's gain is A = V(after) - V(before).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlanything.algorithm.signals import in_window, task_accuracy
from rlanything.records import Completion, JudgedTrajectory, Trajectory
from rlanything.rollout.episodes import Agent, RecordedAgent, RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive

PARALLEL_EPISODES = 128


@dataclass(frozen=True, slots=True)
class Value:
    """The share of `replays` that were won from a state, in [0, 1]."""

    won: float
    replays: int
    """0: the episode had ended, and the value is its outcome."""

    @property
    def variance(self) -> float:
        """An unbiased estimate of the variance of `won`; 0 if it is exact."""
        return self.won * (1 - self.won) / (self.replays - 1) if self.replays > 1 else 0.0


@dataclass(slots=True)
class Replayer:
    """Measures values by letting an agent continue recorded episodes."""

    agent: Agent
    environments: EnvironmentPool
    replays: int
    """K, the number of times that each state is continued."""
    max_steps: int
    """Length at which an episode is lost, recorded steps included."""
    parallel_episodes: int = PARALLEL_EPISODES
    lockstep: bool = True
    """Whether each turn waits for all environments, as in `rollout`."""
    steps: int = 0
    """Number of steps played so far beyond the recorded ones."""

    def values(
        self,
        states: Sequence[tuple[Trajectory, int]],
        seed: int,
        on_episodes: Callable[[int], None] | None = None,
    ) -> list[Value | None]:
        """Returns the value of the state after the first i steps of each trajectory, given as pairs
        of trajectory and i; None if it could not be played.

        States of one task that the same responses led to are measured once."""
        keys = [_key(trajectory, i) for trajectory, i in states]
        live = {
            key: (trajectory, i)
            for key, (trajectory, i) in zip(keys, states, strict=True)
            if i < len(trajectory.steps)
        }
        recorded: dict[str, list[Completion]] = {}
        requests: list[RolloutRequest] = []
        for number, (trajectory, i) in enumerate(live.values()):
            for k in range(self.replays):
                name = f"replay/{number}/{k}"
                recorded[name] = [step.completion for step in trajectory.steps[:i]]
                own = derive(seed, trajectory.id, i, k)
                requests.append(RolloutRequest(name, trajectory.task, own))
        played = rollout(
            RecordedAgent(recorded, self.agent),
            self.environments,
            requests,
            self.max_steps,
            self.parallel_episodes,
            on_episodes,
            self.lockstep,
        )
        outcomes: dict[int, list[int]] = {}
        for episode in played.trajectories:
            self.steps += len(episode.steps) - len(recorded[episode.id])
            outcomes.setdefault(int(episode.id.split("/")[1]), []).append(episode.outcome)
        measured = {
            key: Value(won.count(1) / len(won), len(won))
            for number, key in enumerate(live)
            if (won := outcomes.get(number))
        }
        return [
            measured.get(key) if key in live else Value(float(trajectory.outcome == 1), 0)
            for key, (trajectory, _) in zip(keys, states, strict=True)
        ]


def advantage(before: Value, after: Value) -> tuple[float, float]:
    """Returns A = V(after) - V(before) and its standard error."""
    return after.won - before.won, math.sqrt(after.variance + before.variance)


def disputed(
    judged: Sequence[JudgedTrajectory], window: tuple[float, float], count: int, seed: int
) -> list[tuple[int, int]]:
    """Returns the `count` steps on which judgements disagree most, as pairs of trajectory and step
    index, of tasks whose accuracy is in the window; ties in random order."""
    outcomes: dict[str, list[int]] = {}
    for one in judged:
        outcomes.setdefault(one.trajectory.task.id, []).append(one.trajectory.outcome)
    agreement: dict[tuple[int, int], float] = {}
    for row, one in enumerate(judged):
        if in_window(task_accuracy(outcomes[one.trajectory.task.id]), window):
            for i, step in enumerate(one.scores):
                if 1 in step and -1 in step:
                    agreement[row, i] = abs(sum(step)) / len(step)
    steps = [*agreement]
    order = [steps[k] for k in np.random.default_rng(seed).permutation(len(steps)).tolist()]
    return sorted(order, key=agreement.__getitem__)[:count]


def _key(trajectory: Trajectory, steps: int) -> tuple[str, ...]:
    ended = (trajectory.id,) if steps == len(trajectory.steps) else ()
    return (trajectory.task.id, *(step.response for step in trajectory.steps[:steps]), *ended)
