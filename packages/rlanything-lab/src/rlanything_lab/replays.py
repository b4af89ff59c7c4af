"""The judge that measures: the policy learns from replays, so no judge of steps can win more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rlanything.algorithm.feedback import AdvantageConfig, FeedbackSettings
from rlanything.algorithm.signals import TaskSignals, task_signals
from rlanything.domains.base import Domain
from rlanything.records import Completion, JudgedTrajectory, Judgement, Trajectory
from rlanything.roles.judges.base import JudgeError, OnJudgements, StepJudge
from rlanything.rollout.episodes import Agent
from rlanything.rollout.replays import Replayer
from rlanything.rollout.workers import EnvironmentPool


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
