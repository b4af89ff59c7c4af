"""Values of states, measured by replays.

V of a state is the share of K episodes that the policy wins when it continues from there (VinePPO,
arXiv 2410.01679, section 4). Environments repeat exactly, so an episode can be played again up to
any of its steps. A step's measured advantage is A = V(after) - V(before).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlanything.algorithm.feedback import AdvantageConfig, FeedbackSettings
from rlanything.algorithm.signals import TaskSignals, task_signals
from rlanything.domains.base import Domain
from rlanything.records import Completion, JudgedTrajectory, Judgement, Trajectory
from rlanything.roles.judges.base import JudgeError, OnJudgements, StepJudge
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


@dataclass(frozen=True, slots=True)
class Replayer:
    """Measures values by letting an agent continue recorded episodes."""

    agent: Agent
    environments: EnvironmentPool
    replays: int
    """K, the number of times that each state is continued."""
    max_steps: int
    """Length at which an episode is lost, recorded steps included."""

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
            PARALLEL_EPISODES,
            on_episodes,
        )
        outcomes: dict[int, list[int]] = {}
        for episode in played.trajectories:
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


class ReplayJudge(StepJudge):
    """A judge that measures: the policy learns from A, and a score is the sign of A. It says what
    the best possible judge of steps would win."""

    def __init__(
        self, policy: Agent, domain: Domain, replays: int, max_steps: int, gae_lambda: float = 0.0
    ) -> None:
        """`replays`: K; `max_steps`: that of the loop; `gae_lambda`: lambda of GAE over the
        measured values: 0 gives A, 1 the outcome less V. Raises `JudgeError` for a K below 1."""
        if replays < 1:
            raise JudgeError("judge.options.replays: replay each state at least once")
        self._environments = EnvironmentPool(domain, {}, 0, math.inf)
        self._replayer = Replayer(policy, self._environments, replays, max_steps)
        self._advantage = AdvantageConfig(name="gae", options={"gae_lambda": gae_lambda})
        self._values: dict[str, list[float]] = {}
        """V of the states of the episodes judged last, in [-1, 1], by the episode's id."""

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        seed: int,
        on_judgements: OnJudgements | None = None,
    ) -> list[JudgedTrajectory]:
        """Returns the trajectories with one judgement of each step, [trajectories][steps][1].

        Raises `JudgeError` if a state cannot be played again."""
        states = [(one, i) for one in trajectories for i in range(len(one.steps) + 1)]
        values = iter(self._replayer.values(states, seed))
        self._values, judged = {}, list[JudgedTrajectory]()
        for one in trajectories:
            known = [value.won for _ in range(len(one.steps) + 1) if (value := next(values))]
            if len(known) <= len(one.steps):
                raise JudgeError(f"{one.id} cannot be played again: give this domain another judge")
            # The last step earns the outcome itself: no value is left after it.
            self._values[one.id] = [*(2 * value - 1 for value in known[:-1]), 0.0]
            steps = (_judgement(*pair) for pair in itertools.pairwise(known))
            judged.append(JudgedTrajectory(one, tuple((step,) for step in steps)))
            if on_judgements is not None:
                on_judgements(len(one.steps))
        return judged

    def signals(
        self, judged: Sequence[JudgedTrajectory], settings: FeedbackSettings
    ) -> TaskSignals:
        """Returns GAE over the measured values of one task's episodes, divided by its standard
        deviation over their steps; all 0 outside the policy's window."""
        measured = settings.model_copy(
            update={"policy_reward": "outcome", "advantage": self._advantage}
        )
        trajectories = [one.trajectory for one in judged]
        signals = task_signals(
            [one.outcome for one in trajectories],
            [one.scores for one in judged],
            measured,
            values=[self._values[one.id] for one in trajectories],
        )
        gains = [np.asarray(steps, dtype=np.float64) for steps in signals.policy]
        spread = float(np.concatenate(gains).std()) or 1.0
        return replace(signals, policy=tuple(steps / spread for steps in gains))


def _judgement(before: float, after: float) -> Judgement:
    score = (after > before) - (after < before)
    return Judgement(Completion.unsampled(f"V {before:.2f} -> {after:.2f}"), score)


def _key(trajectory: Trajectory, steps: int) -> tuple[str, ...]:
    ended = (trajectory.id,) if steps == len(trajectory.steps) else ()
    return (trajectory.task.id, *(step.response for step in trajectory.steps[:steps]), *ended)
