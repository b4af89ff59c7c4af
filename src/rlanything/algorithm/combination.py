"""The scores of several judges, combined into what the policy learns from (Eq. 1)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import chain

import numpy as np

from rlanything.algorithm.feedback import (
    FeedbackSettings,
    Floats,
    TrajectoryScores,
    Unreadable,
    fill_missing,
    in_window,
    mean_score,
    policy_advantages,
    policy_feedback,
    task_accuracy,
)


def combined_mean_scores(
    scores: Mapping[str, Sequence[TrajectoryScores]],
    weights: Mapping[str, float],
    unreadable: Unreadable = "missing",
) -> list[Floats]:
    """Returns the mean score of every step [G][steps] of one task:
    sum_k w_k mean_j S^k_ij / sum_k w_k, over the judges k with a score of step i.

    `scores` by judge, [G][steps][m]. Under `missing` an unparsable 0 is no score, under `zero` it
    is one of 0. A step without a score of any judge has mean 0."""
    totals: list[Floats] | None = None
    shares: list[Floats] = []
    for judge, of_judge in scores.items():
        if totals is None:
            totals = [np.zeros(len(steps)) for steps in of_judge]
            shares = [np.zeros(len(steps)) for steps in of_judge]
        for total, share, steps in zip(totals, shares, of_judge, strict=True):
            for i, step in enumerate(steps):
                if any(step) if unreadable == "missing" else len(step):
                    total[i] += weights[judge] * mean_score(step, unreadable)
                    share[i] += weights[judge]
    return [
        np.divide(total, share, out=np.zeros_like(total), where=share > 0)
        for total, share in zip(totals or [], shares, strict=True)
    ]


def combined_policy_advantages(
    outcomes: Sequence[int],
    scores: Mapping[str, Sequence[TrajectoryScores]],
    weights: Mapping[str, float],
    settings: FeedbackSettings,
    rewards: Sequence[float | None],
    states: Sequence[Sequence[Hashable]],
) -> tuple[Floats, ...]:
    """Returns the advantages of the policy [G][steps] from the scores of several judges, otherwise
    as `task_signals` computes them. All 0 outside the policy's window."""
    if not in_window(task_accuracy(outcomes), settings.policy_window):
        return tuple(np.zeros(len(steps)) for steps in states)
    means = combined_mean_scores(scores, weights, settings.unreadable)
    if settings.unreadable == "missing":
        rows = list(zip(*scores.values(), strict=True))  # [G][judges][steps][m]
        every = [[[*chain(*step)] for step in zip(*own, strict=True)] for own in rows]
        means = fill_missing(means, every, settings.policy_comparison, states)
    known = None not in rewards
    feedback = [
        policy_feedback(outcome, mean, settings, reward if known else None)
        for outcome, mean, reward in zip(outcomes, means, rewards, strict=True)
    ]
    return policy_advantages(feedback, settings.policy_comparison, states)
