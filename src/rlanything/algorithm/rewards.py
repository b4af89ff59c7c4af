"""Rewards of judges: pure functions from the m answers for each step of one task's rollout group
to an advantage for each answer.

| name | advantage of answer j for step i | source |
|---|---|---|
| `consistency` | R^S_ij = R_i S_ij, standardized over the m of its step | the paper, Eq. 2 |
| `proper` | -(p_ij - W)^2 minus its mean over the m, divided by the spread of p | Brier score |
| `replays` | sign(A_i) S_ij, standardized likewise, times abs(A_i); A_i by replays | VinePPO |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Annotated, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rlanything.algorithm.feedback import (
    Floats,
    Moments,
    TrajectoryScores,
    consistency_feedback,
    moments,
    standardize,
)
from rlanything.algorithm.options import Options, needs

Normalization: TypeAlias = Literal["step", "task"]
Balance: TypeAlias = Literal["none", "outcome"]


@dataclass(frozen=True, slots=True)
class RewardInputs:
    """The answers of one judge for the rollout group of one task: G trajectories."""

    outcomes: Sequence[int]
    """O, [G], each -1 or +1."""
    scores: Sequence[TrajectoryScores]
    """S_ij, [G][steps][m]; 0 is unreadable."""
    feedback: Sequence[Floats]
    """R_i, [G] arrays [steps]: Eq. 1 with this judge's own scores and `judge_lambda`."""
    grades: Sequence[TrajectoryScores] | None = None
    """Grades [G][steps][m] from 0 to 10, -1 if unreadable; None from a judge that scores."""
    gains: Sequence[Sequence[float]] | None = None
    """The gains A_i that replays measured, [G][steps] in [-1, 1]; 0 where none was measured."""


JudgeAdvantages: TypeAlias = Sequence[Sequence[Floats]]
"""[G][steps] arrays [m]."""


class ConsistencyOptions(Options):
    """Options of `consistency`."""

    normalization: Normalization = "step"
    """Standardize R^S over the judgements of one step, or over all judgements of the task."""
    balance: Balance = "outcome"
    """`outcome` gives the steps of won and of lost episodes of a task equal total weight, so tasks
    that were always won or always lost teach the judge nothing; it keeps a weak policy's judge from
    collapsing to -1 (measured in benchmarks/remedies.md). `none` weighs every step equally, as the
    paper does."""


def consistency(inputs: RewardInputs, options: ConsistencyOptions) -> list[list[Floats]]:
    """R^S_ij = R_i * S_ij (Eq. 2), standardized by its population std; 0 if that std is 0."""
    feedback, weight = np.concatenate(inputs.feedback), None
    if options.balance == "outcome":
        outcome_of_step = np.repeat(inputs.outcomes, [len(steps) for steps in inputs.scores])
        won = outcome_of_step == 1
        weights = outcome_balance(int(won.sum()), int((~won).sum()))
        weight = np.where(won, weights[1], weights[-1])
    return _consistent(inputs.scores, feedback, options.normalization, weight)


def _consistent(
    scores: Sequence[TrajectoryScores],
    feedback: Floats,
    normalization: Normalization,
    weights: Floats | None = None,
) -> list[list[Floats]]:
    """Returns the standardized R_i S_ij, times the weight of its step, from R_i and weights of all
    steps end to end."""
    counts = np.array([len(step) for steps in scores for step in steps], dtype=np.intp)
    judged = list(chain.from_iterable(chain.from_iterable(scores)))
    consistent = consistency_feedback(np.repeat(feedback, counts), judged)
    advantages = judge_advantages(consistent, counts, normalization)
    if weights is not None:
        advantages *= np.repeat(weights, counts)
    # Split again into steps and trajectories.
    ends = np.cumsum(counts).tolist()
    cut = (advantages[end - m : end] for end, m in zip(ends, counts.tolist(), strict=True))
    return [list(islice(cut, len(steps))) for steps in scores]


@needs("grades")
def proper(inputs: RewardInputs) -> list[list[Floats]]:
    """Brier score of a stated chance p of winning (the grade / 10) against W, 1 if the episode was
    won and else 0: -(p_j - W)^2, and -1, the worst, for an unreadable answer; minus the mean of the
    m answers of its step, divided by the standard deviation of their p.

    Among answers that differ, the expected advantage is the larger the nearer p is to the true
    chance. That would not hold if the divisor were the deviation of the rewards themselves, which
    depends on W: every judge would be driven to 0 and 1. In the divisor an unreadable answer is 1
    away from the others."""
    return [
        [_brier_advantages(np.asarray(step), outcome == 1) for step in steps]
        for outcome, steps in zip(inputs.outcomes, inputs.grades or (), strict=True)
    ]


def _brier_advantages(grades: npt.NDArray[np.integer], won: bool) -> Floats:
    """Returns the advantages [m] of the answers of one step."""
    chances, unread = grades / 10, grades < 0
    rewards = np.where(unread, -1.0, -((chances - won) ** 2))
    read = moments(chances[~unread]).mean
    spread = np.sqrt(np.mean(np.where(unread, 1.0, chances - read) ** 2)) if len(grades) else 0.0
    return standardize(rewards, Moments(moments(rewards).mean, np.asarray(spread)))


class ReplayOptions(Options):
    """Options of `replays`."""

    steps: Annotated[int, Field(ge=1)] = 128
    """Number of steps per iteration whose gain is measured: those on which the judge's answers
    disagree most."""
    replays: Annotated[int, Field(ge=1)] = 2
    """K, how often each of their two states is continued."""


@needs("gains")
def replays(inputs: RewardInputs, options: ReplayOptions) -> list[list[Floats]]:
    """R^S_ij = sign(A_i) * S_ij, standardized by its population std over the m of its step, times
    |A_i|: Eq. 2 with the gain A_i = V(after) - V(before) in place of R_i, whose sign is the
    outcome's. Where all scores can be read, the expected advantage is in proportion to the true
    gain, however few the replays."""
    del options  # they say what is measured
    gains = np.array([*chain.from_iterable(inputs.gains or ())], dtype=np.float64)
    return _consistent(inputs.scores, np.sign(gains), "step", abs(gains))


def judge_advantages(
    consistency: Floats, counts: npt.NDArray[np.integer], normalization: Normalization
) -> Floats:
    """R^S_ij standardized over the m judgements of its step, or over all of one task's judgements.

    `consistency` [judgements] has those of all steps end to end, `counts` [steps] the m of each
    step; advantages [judgements] in the same order."""
    if normalization == "task":
        return standardize(consistency, moments(consistency))
    advantages = np.zeros_like(consistency)
    m_of_step = np.repeat(counts, counts)
    # Steps with the same m together, one row each: fewer numpy calls.
    for m in np.unique(m_of_step).tolist():
        steps = consistency[m_of_step == m].reshape(-1, m)
        over = moments(steps)
        by_row = Moments(over.mean[:, None], over.std[:, None])
        advantages[m_of_step == m] = standardize(steps, by_row).ravel()
    return advantages


def outcome_balance(won_steps: int, lost_steps: int) -> dict[int, float]:
    """Returns weights by outcome that make a task's won and lost episodes count equally.

    The steps of both have the same total weight. Not in the paper. Lost episodes are longer and,
    with a weak policy, more: at lambda = 1 the sign of R_i is the outcome's, so that "always -1"
    agrees with most steps. The weight is twice the share of the *other* outcome's steps: at most 2,
    and 0 if a task has only one outcome."""
    total = max(won_steps + lost_steps, 1)
    return {1: 2 * lost_steps / total, -1: 2 * won_steps / total}
