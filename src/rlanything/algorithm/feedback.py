"""Eq. 1 and Eq. 2 of the paper: feedback for a step and its judgements from outcome and scores.

Symbols: O an outcome, m judgements of a step, S_ij the score that judgement j gives step i, lambda
the settings' `policy_lambda` and `judge_lambda`. Trajectories differ in length and may be empty,
and m may differ between steps, so scores are nested lists, never padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from rlanything.algorithm.options import FunctionConfig, Options

Floats: TypeAlias = npt.NDArray[np.float64]
StepScores: TypeAlias = Sequence[int] | npt.NDArray[np.integer]
"""S_ij of one step, [m]."""
TrajectoryScores: TypeAlias = Sequence[StepScores] | npt.NDArray[np.integer]
"""S_ij of one trajectory, [steps][m]."""
PolicyReward: TypeAlias = Literal["integrated", "outcome", "judge"]
Unreadable: TypeAlias = Literal["missing", "zero"]
LambdaControl: TypeAlias = Literal["fixed", "adaptive"]
Lambda: TypeAlias = Annotated[float, Field(ge=0)]
Window: TypeAlias = Annotated[tuple[float, float], Field(strict=False)]
"""An interval; strict about its numbers, but given as a list in YAML."""

UNPARSABLE = -2.0
"""R^S_ij of a judgement without a readable score: no better than the worst readable one."""

RESOLUTION = 1e-12
"""Deviations below this count as 0: feedback is of order one, so they are rounding."""


class AdvantageConfig(FunctionConfig):
    """The advantage of the policy."""

    kind: ClassVar[str] = "advantage"
    name: str = "step"
    """Name of a registered advantage, or `module:function`."""


class RewardConfig(FunctionConfig):
    """The reward of a judge that learns."""

    kind: ClassVar[str] = "reward"
    name: str = "consistency"
    """Name of a registered reward, or `module:function`."""


class FeedbackSettings(Options):
    """How outcomes and scores become advantages: the section `feedback` of a recipe."""

    policy_lambda: Lambda = 1.0
    """lambda of the policy's integrated feedback (Eq. 1); its maximum if it is adaptive."""
    policy_lambda_control: LambdaControl = "fixed"
    """`fixed`: lambda is `policy_lambda` (the paper). `adaptive`: each judge's is `policy_lambda`
    times a factor in [0, 1], measured in every iteration, that says how clearly its scores agree
    with outcomes: near 0 for a judge at chance (docs/losses.md)."""
    judge_lambda: Lambda = 1.0
    """lambda inside the judge's consistency feedback (Eq. 2). If judgements are compared within
    their step, only the sign of the feedback counts: the outcome's up to lambda 1 (below 3 for
    three readable judgements), that of most judgements above."""
    policy_reward: PolicyReward = "integrated"
    """Feedback that the policy's advantage compares: `integrated` (Eq. 1); the episode's `outcome`,
    or the environment's own reward if it gives one (for coding the share of ground-truth tests
    passed); or the `judge`'s scores of each step alone."""
    advantage: AdvantageConfig = Field(default_factory=AdvantageConfig.default)
    """Advantage of the policy, by name or as `{name: ..., options: {...}}`. It compares a step with
    the steps at the same index of the task's other rollouts (`step`, the paper), with all their
    steps (`trajectory`), with steps that had the same observation (`state`, `graph`), or with the
    mean of the other rollouts (`leave_one_out`); `gae` needs a judge of value. Also an advantage
    that an installed package registers, or `module:function` (docs/losses.md)."""
    policy_window: Window = (1 / 8, 7 / 8)
    """The policy trains on tasks whose accuracy is in this interval, bounds included."""
    judge_reward: RewardConfig = Field(default_factory=RewardConfig.default)
    """Reward of a judge, by name or as `{name: ..., options: {...}}`: `consistency` (Eq. 2),
    `proper` for a judge of value, `replays` (Eq. 2 with gains that are measured by playing steps
    again), one that an installed package registers, or `module:function`
    (docs/losses.md)."""
    judge_window: Window = (0.2, 0.8)
    """Judges train on tasks whose accuracy is in this interval, bounds included. A judge of value
    learns from every task: [0, 1]."""
    unreadable: Unreadable = "missing"
    """How judgements without a readable score count in their step's mean score: `missing` ignores
    them (a step without any readable judgement is compared by its outcome alone), `zero` counts
    them as 0 (the paper). Either way the judge is trained away from them (Eq. 2)."""

    @field_validator("policy_window", "judge_window")
    @classmethod
    def _in_order(cls, window: tuple[float, float]) -> tuple[float, float]:
        if not 0 <= window[0] <= window[1] <= 1:
            raise ValueError("give low <= high, both in [0, 1]")
        return window

    def with_lambda(self, policy_lambda: float) -> Self:
        """Returns the settings with lambda of Eq. 1 fixed."""
        changes = {"policy_lambda": policy_lambda, "policy_lambda_control": "fixed"}
        return self.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and population standard deviation, of the same shape: [] or one per step index."""

    mean: Floats
    std: Floats


def mean_score(scores: StepScores, unreadable: Unreadable = "missing") -> float:
    """(sum_j S_ij) / m of one step, 0 without judgements; an unparsable 0 counts in m or not."""
    counted = len(scores) - (list(scores).count(0) if unreadable == "missing" else 0)
    return int(sum(scores)) / counted if counted else 0.0


def combined_score(
    scores: Sequence[StepScores], weights: Sequence[float], unreadable: Unreadable = "missing"
) -> float:
    """sum_k w_k mean_j S^k_ij / sum_k w_k of one step, over the judges k with a readable score or,
    with `zero`, with any; 0 without."""
    means = [
        (weight, mean_score(given, unreadable))
        for weight, given in zip(weights, scores, strict=True)
        if (any(given) if unreadable == "missing" else len(given))
    ]
    if len(means) < 2:  # exact, without the rounding of a division
        return means[0][1] if means else 0.0
    return sum(weight * mean for weight, mean in means) / sum(weight for weight, _ in means)


def integrated_feedback(outcome: int, mean_scores: npt.ArrayLike, lambda_: float) -> Floats:
    """Eq. 1: R_i = O + lambda * (sum_j S_ij) / m, from the mean scores [steps]."""
    return outcome + lambda_ * np.asarray(mean_scores, dtype=np.float64)


def policy_feedback(
    outcome: int,
    mean_scores: npt.ArrayLike,
    settings: FeedbackSettings,
    reward: float | None = None,
) -> Floats:
    """R_i [steps] of the policy for one trajectory, from O and its mean scores [steps].

    `integrated`: Eq. 1. `outcome`: O, or the reward that the environment measured in its place.
    `judge`: lambda * (sum_j S_ij) / m, without the outcome; for generated tests, lambda * (2 *
    share passed - 1)."""
    mean = np.asarray(mean_scores, dtype=np.float64)
    if settings.policy_reward == "outcome":
        return np.full(mean.shape, float(outcome) if reward is None else reward)
    return integrated_feedback(
        0 if settings.policy_reward == "judge" else outcome, mean, settings.policy_lambda
    )


def consistency_feedback(feedback: npt.ArrayLike, scores: npt.ArrayLike) -> Floats:
    """Eq. 2: R^S_ij = R_i * S_ij, -2 where S_ij is unparsable; R_i and the scores [m] of one step,
    or any shapes that broadcast."""
    score = np.asarray(scores, dtype=np.float64)
    return np.where(score == 0, UNPARSABLE, np.asarray(feedback) * score)


def moments(values: npt.ArrayLike) -> Moments:
    """Mean and population std [...] of `values` [..., n] over their last axis.

    Nothing at all (n = 0) has mean 0 and std 0."""
    value = np.asarray(values, dtype=np.float64)
    n = value.shape[-1]
    if n == 0:
        return Moments(np.zeros(value.shape[:-1]), np.zeros(value.shape[:-1]))
    mean = np.asarray(value.sum(axis=-1) / n)
    return Moments(mean, np.sqrt(((value - mean[..., None]) ** 2).sum(axis=-1) / n))


def standardize(values: npt.ArrayLike, over: Moments) -> Floats:
    """(value - mean) / std, of the shape of `values`; a value equal to the mean gives exactly 0.

    So equal values and a single value give exactly 0, despite rounding of mean and std."""
    deviation = np.asarray(values, dtype=np.float64) - over.mean
    rounding = np.abs(deviation) <= RESOLUTION * np.maximum(1.0, np.abs(over.mean) + over.std)
    return np.where(rounding, 0.0, deviation / np.where(rounding, 1.0, over.std))
