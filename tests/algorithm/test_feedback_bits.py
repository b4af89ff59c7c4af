"""`task_signals` computes many steps at once; here is the same, one step after the other.

Advantages end up in weights, and runs are to repeat bit for bit: close is not enough.
"""

from __future__ import annotations

from itertools import product
from typing import get_args

import numpy as np
import pytest

from rlanything.algorithm.feedback import (
    AdvantageConfig,
    FeedbackSettings,
    Moments,
    PolicyReward,
    RewardConfig,
    consistency_feedback,
    integrated_feedback,
    mean_score,
    policy_feedback,
    standardize,
)
from rlanything.algorithm.rewards import Balance, Normalization, outcome_balance
from rlanything.algorithm.signals import in_window, task_accuracy, task_signals

COMPARISONS = ("step", "trajectory", "state")
GROUPS = 100
"""For each of the settings below, half of them ragged."""


def moments(values):
    value = np.asarray(values, dtype=np.float64)
    count = np.ones_like(value)
    total = count.sum()
    if total == 0:
        return Moments(np.zeros(()), np.zeros(()))
    mean = np.asarray((value * count).sum() / total)
    return Moments(mean, np.sqrt(((value - mean) ** 2 * count).sum() / total))


def policy_one_by_one(feedback, comparison, states):
    if comparison == "step":
        table = np.full((len(feedback), max(map(len, feedback))), np.nan)
        for row, steps in zip(table, feedback, strict=True):
            row[: len(steps)] = steps
        over = Moments(np.nanmean(table, axis=0), np.nanstd(table, axis=0))
        return [
            [
                standardize(value, Moments(over.mean[i], over.std[i]))
                for i, value in enumerate(steps)
            ]
            for steps in feedback
        ]
    if comparison == "trajectory":
        over = moments(np.concatenate(feedback))
        return [[standardize(value, over) for value in steps] for steps in feedback]
    values = [
        (state, value)
        for own, steps in zip(states, feedback, strict=True)
        for state, value in zip(own, steps, strict=True)
    ]
    return [
        [
            standardize(value, moments(sorted(v for other, v in values if other == state)))
            for state, value in zip(own, steps, strict=True)
        ]
        for own, steps in zip(states, feedback, strict=True)
    ]


def judge_one_by_one(outcomes, scores, means, settings):
    consistency = [
        [
            consistency_feedback(float(r), step)
            for r, step in zip(
                integrated_feedback(outcome, mean, settings.judge_lambda), steps, strict=True
            )
        ]
        for outcome, steps, mean in zip(outcomes, scores, means, strict=True)
    ]
    if settings.judge_reward.options["normalization"] == "step":
        judge = [[standardize(step, moments(step)) for step in steps] for steps in consistency]
    else:
        flat = [step for steps in consistency for step in steps]
        over = moments(np.concatenate(flat) if flat else [])
        judge = [[standardize(step, over) for step in steps] for steps in consistency]
    if settings.judge_reward.options["balance"] == "none":
        return judge
    steps_of = {
        o: sum(len(steps) for outcome, steps in zip(outcomes, scores, strict=True) if outcome == o)
        for o in (1, -1)
    }
    weights = outcome_balance(steps_of[1], steps_of[-1])
    return [
        [weights[outcome] * step for step in steps]
        for outcome, steps in zip(outcomes, judge, strict=True)
    ]


def means_one_by_one(scores, settings, states):
    """Mean scores [G][steps]; a step without a readable judgement has the mean of those that it is
    compared with."""

    def compared(one, other):
        (g, i), (h, k) = one, other
        same = {"step": i == k, "trajectory": True, "state": states[g][i] == states[h][k]}
        return same[settings.advantage.name]

    places = [(g, i) for g, steps in enumerate(scores) for i in range(len(steps))]
    unread = [p for p in places if scores[p[0]][p[1]] and not any(scores[p[0]][p[1]])]
    means = [
        np.array([mean_score(step, settings.unreadable) for step in steps]) for steps in scores
    ]
    for place in unread if settings.unreadable == "missing" else ():
        read = [means[g][i] for g, i in places if (g, i) not in unread and compared(place, (g, i))]
        means[place[0]][place[1]] = moments(sorted(read)).mean if read else 0.0
    return means


def one_by_one(outcomes, scores, settings, rewards, states):
    """The policy's advantages [G][steps] and the judge's [G][steps] arrays [m]."""
    accuracy = task_accuracy(outcomes)
    means = means_one_by_one(scores, settings, states)
    policy = [[0.0] * len(steps) for steps in scores]
    if in_window(accuracy, settings.policy_window):
        measured = [None] * len(outcomes) if None in rewards else rewards
        feedback = [
            policy_feedback(outcome, mean, settings, reward)
            for outcome, mean, reward in zip(outcomes, means, measured, strict=True)
        ]
        policy = policy_one_by_one(feedback, settings.advantage.name, states)
    judge = [[np.zeros(len(step)) for step in steps] for steps in scores]
    if in_window(accuracy, settings.judge_window):
        judge = judge_one_by_one(outcomes, scores, means, settings)
    return policy, judge


def random_group(rng, ragged):
    outcomes = rng.choice([-1, 1], size=rng.integers(1, 9)).tolist()
    longest, m = int(rng.integers(1, 12)), int(rng.integers(0, 9))
    likely = rng.dirichlet([0.3, 1, 1])
    scores = [
        [
            rng.choice(
                [0, -1, 1], p=likely, size=rng.choice([rng.integers(0, 9), 12]) if ragged else m
            ).tolist()
            for _ in range(rng.integers(0, longest + 1) if ragged else longest)
        ]
        for _ in outcomes
    ]
    rewards = rng.choice([None, 0.0, 0.3, 1 / 3], size=len(outcomes)).tolist()
    states = [[str(rng.integers(4)) for _ in steps] for steps in scores]
    return outcomes, scores, rewards, states


def bits(nested):
    return [[np.asarray(step, dtype=np.float64).tobytes() for step in steps] for steps in nested]


@pytest.mark.filterwarnings("ignore:.*(slice|Degrees):RuntimeWarning")
@pytest.mark.parametrize(
    ("comparison", "reward", "normalization", "balance"),
    list(product(COMPARISONS, *map(get_args, (PolicyReward, Normalization, Balance)))),
)
def test_many_steps_at_once_give_the_bits_of_one_by_one(comparison, reward, normalization, balance):
    rng = np.random.default_rng(sum(map(ord, comparison + reward + normalization + balance)))
    compared = 0
    for number in range(GROUPS):
        outcomes, scores, rewards, states = random_group(rng, ragged=number % 2 == 1)
        window = [(0.0, 1.0), (1 / 8, 7 / 8), (0.2, 0.8)][number % 3]
        settings = FeedbackSettings(
            policy_lambda=float(rng.choice([0, 0.25, 1, 1.7, 4])),
            judge_lambda=float(rng.choice([0, 0.25, 1, 1.7, 4])),
            policy_reward=reward,
            advantage=AdvantageConfig(name=comparison),
            policy_window=window,
            judge_window=window,
            judge_reward=RewardConfig(options={"normalization": normalization, "balance": balance}),
            unreadable=("zero", "missing")[number // 2 % 2],
        )
        policy, judge = one_by_one(outcomes, scores, settings, rewards, states)
        signals = task_signals(outcomes, scores, settings, rewards, states)
        assert bits(signals.policy) == bits(policy)
        assert bits(signals.judges["judge"]) == bits(judge)
        compared += sum(len(step) > 0 for steps in judge for step in steps)
    assert compared > 1000
