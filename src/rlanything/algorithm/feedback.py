"""The signals: what an outcome and the judge's scores teach the policy and the judge.

The paper's Eq. 1 and Eq. 2, their standardization, and who may train: pure functions on arrays.
Symbols: G trajectories of one task, O an outcome, m judgements of a step, S_ij the score that
judgement j gives step i, lambda the settings' `policy_lambda` and `judge_lambda`. Trajectories
differ in length and may have no steps at all; m may differ between steps (data from elsewhere),
so scores are nested, never padded.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import chain, compress, islice
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
StepScores: TypeAlias = Sequence[int] | npt.NDArray[np.integer]
"""S_ij of one step, [m]."""
TrajectoryScores: TypeAlias = Sequence[StepScores] | npt.NDArray[np.integer]
"""S_ij of one trajectory, [steps][m]."""
Normalization: TypeAlias = Literal["step", "task"]
Balance: TypeAlias = Literal["none", "outcome"]
Comparison: TypeAlias = Literal["step", "trajectory", "state"]
PolicyReward: TypeAlias = Literal["integrated", "outcome", "judge"]
Unreadable: TypeAlias = Literal["missing", "zero"]

UNPARSABLE = -2.0
"""R^S_ij of a judgement without a readable score: no better than the worst readable one."""

RESOLUTION = 1e-12
"""Feedback is of order one; a deviation smaller than this is rounding, and counts as none."""


class SettingsError(ValueError):
    """A setting without meaning; the message is one line that names it and what it may be."""


@dataclass(frozen=True, slots=True)
class FeedbackSettings:
    """How outcomes and scores become advantages. Raises `SettingsError`."""

    policy_lambda: float = 1.0
    """lambda of the policy's feedback R_i."""
    judge_lambda: float = 1.0
    """lambda of the R_i inside the judge's feedback R^S_ij. Normalized over a step, R^S keeps only
    the sign of R_i, so that all numbers up to 1 come to the same: the outcome's."""
    policy_reward: PolicyReward = "integrated"
    """R_i of the policy: Eq. 1, its first term (what the episode earned) or its second (what the
    judge said) alone."""
    policy_comparison: Comparison = "step"
    """What R_i is standardized over, see `policy_advantages`."""
    policy_window: tuple[float, float] = (1 / 8, 7 / 8)
    """Task accuracies on which the policy trains, both ends included."""
    judge_window: tuple[float, float] = (0.2, 0.8)
    """Task accuracies on which the judge trains, both ends included."""
    judge_normalization: Normalization = "step"
    """Standardize R^S over the judgements of one step, or over all judgements of the task."""
    judge_balance: Balance = "outcome"
    """Whether the steps of won and of lost episodes weigh the same in what the judge learns
    (`outcome`), or every step does (`none`, the paper)."""
    unreadable: Unreadable = "missing"
    """Whether judgements without a readable score are left out of the mean score of their step
    (`missing`, see `fill_missing`) or count as 0 (`zero`, the paper)."""

    def __post_init__(self) -> None:
        for name, value in (
            ("policy_lambda", self.policy_lambda),
            ("judge_lambda", self.judge_lambda),
        ):
            if not (math.isfinite(value) and value >= 0):
                raise SettingsError(f"{name} is {value}: give a finite number, 0 or more")
        for name, window in (
            ("policy_window", self.policy_window),
            ("judge_window", self.judge_window),
        ):
            if not 0 <= window[0] <= window[1] <= 1:
                raise SettingsError(f"{name} is {window}: give low <= high, both in [0, 1]")
        for name, value, kind in (
            ("policy_reward", self.policy_reward, PolicyReward),
            ("policy_comparison", self.policy_comparison, Comparison),
            ("judge_normalization", self.judge_normalization, Normalization),
            ("judge_balance", self.judge_balance, Balance),
            ("unreadable", self.unreadable, Unreadable),
        ):
            if value not in get_args(kind):
                known = " or ".join(map(repr, get_args(kind)))
                raise SettingsError(f"{name} is {value!r}: give {known}")


@dataclass(frozen=True, slots=True)
class TaskSignals:
    """The advantages of the rollout group of one task. An advantage of exactly 0 does not train."""

    accuracy: float
    policy: tuple[Floats, ...]
    """[G] arrays [steps]; all 0 where the accuracy lies outside the policy's window."""
    judges: Mapping[str, tuple[tuple[Floats, ...], ...]] = field(default_factory=dict)
    """By judge, [G][steps] arrays [m]; all 0 where the accuracy lies outside the judges' window."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and population standard deviation, of the same shape: [] or one per step index."""

    mean: Floats
    std: Floats


def task_accuracy(outcomes: Sequence[int] | npt.NDArray[np.integer]) -> float:
    """The fraction of a task's rollouts with O = +1. Raises ValueError without rollouts."""
    if len(outcomes) == 0:
        raise ValueError("a task without rollouts has no accuracy")
    return sum(1 for outcome in outcomes if outcome == 1) / len(outcomes)


def in_window(accuracy: float, window: tuple[float, float]) -> bool:
    """Whether a task of this accuracy trains; both ends of the window do."""
    return window[0] <= accuracy <= window[1]


def mean_score(scores: StepScores, unreadable: Unreadable = "missing") -> float:
    """(sum_j S_ij) / m of one step, 0 without judgements; an unparsable 0 counts in m or not."""
    counted = len(scores) - (list(scores).count(0) if unreadable == "missing" else 0)
    return int(sum(scores)) / counted if counted else 0.0


def fill_missing(
    mean_scores: Sequence[Floats],
    scores: Sequence[Sequence[StepScores]],
    comparison: Comparison,
    states: Sequence[Sequence[Hashable]] | None = None,
) -> list[Floats]:
    """Returns the mean scores [G][steps] of one task in which a step with judgements, but no
    readable one, takes the mean of the readable steps it is compared with (0 without any): its
    outcome alone tells it apart."""
    unread = [np.array([len(s) > 0 and not any(s) for s in steps], dtype=bool) for steps in scores]
    if not any(map(np.any, unread)):
        return list(mean_scores)
    keys = comparison_keys(scores, comparison, states)
    known: dict[Hashable, list[float]] = defaultdict(list)
    for own, means, gone in zip(keys, mean_scores, unread, strict=True):
        for key, mean in compress(zip(own, means.tolist(), strict=True), ~gone):
            known[key].append(mean)
    fill = {key: float(moments(sorted(means)).mean) for key, means in known.items()}
    return [
        np.where(gone, [fill.get(key, 0.0) for key in own], means)
        for own, means, gone in zip(keys, mean_scores, unread, strict=True)
    ]


def comparison_keys(
    per_step: Sequence[Sized],
    comparison: Comparison,
    states: Sequence[Sequence[Hashable]] | None,
) -> Sequence[Sequence[Hashable]]:
    """Returns a key for each step [G][steps]; equal ones are compared, see `policy_advantages`.
    Raises ValueError where states are needed and do not fit `per_step`, anything [G][steps]."""
    if comparison == "step":
        return [range(len(steps)) for steps in per_step]
    if comparison == "trajectory":
        return [("",) * len(steps) for steps in per_step]
    if states is None or list(map(len, states)) != list(map(len, per_step)):
        raise ValueError("to compare steps by their states, give the state of every step")
    return states


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
    `judge`: lambda * (sum_j S_ij) / m, without the outcome; where scores are generated tests that
    is lambda * (2 * the share of them passed - 1)."""
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


def step_moments(feedback: Sequence[Floats]) -> Moments:
    """Moments [longest] of R_i at each step index, over the trajectories that reached it."""
    longest = max(len(steps) for steps in feedback)
    table = np.full((len(feedback), longest), np.nan)
    for row, steps in zip(table, feedback, strict=True):
        row[: len(steps)] = steps
    return Moments(np.nanmean(table, axis=0), np.nanstd(table, axis=0))


def standardize(values: npt.ArrayLike, over: Moments) -> Floats:
    """(value - mean) / std, of the shape of `values`; a value equal to the mean gives exactly 0.

    Equal values, and a value with nothing to compare it to, therefore give exactly 0, whatever
    rounding does to their mean and std."""
    deviation = np.asarray(values, dtype=np.float64) - over.mean
    rounding = np.abs(deviation) <= RESOLUTION * np.maximum(1.0, np.abs(over.mean) + over.std)
    return np.where(rounding, 0.0, deviation / np.where(rounding, 1.0, over.std))


def policy_advantages(
    feedback: Sequence[Floats],
    comparison: Comparison = "step",
    states: Sequence[Sequence[Hashable]] | None = None,
) -> tuple[Floats, ...]:
    """A_i = (R_i - mean) / population std, for R_i [G] arrays [steps] of one task, over

    - `step`: the R_i of all trajectories that reached step index i (the paper);
    - `trajectory`: the R_k of all steps k of all trajectories, as process rewards are normalised in
      DeepSeekMath (arXiv 2402.03300, 4.1.3), without its sum over later steps;
    - `state`: the R_k of all steps of all trajectories that began in the same state, the anchor
      states of GiGPO (arXiv 2505.10978). Its A^S compares discounted returns and is added to an
      advantage of whole episodes; here R_k is compared, and nothing is added: what differs is only
      what a step is compared with. A state met once has nothing to be compared with.

    `states` [G][steps] say which state a step began in: equal ones are the same. Where the std is
    0, or nothing is there to compare, there is no signal: 0. Raises ValueError where states are
    needed and do not fit."""
    if comparison == "step":
        over = step_moments(feedback)
        return tuple(
            standardize(steps, Moments(over.mean[: len(steps)], over.std[: len(steps)]))
            for steps in feedback
        )
    if comparison == "trajectory":
        over = moments(np.concatenate(feedback))
        return tuple(standardize(steps, over) for steps in feedback)
    states = comparison_keys(feedback, comparison, states)
    values: dict[Hashable, list[float]] = defaultdict(list)
    for own, steps in zip(states, feedback, strict=True):
        for state, value in zip(own, steps.tolist(), strict=True):
            values[state].append(value)
    # Sorted, so that rounding does not depend on whose rollout comes first.
    known = {state: moments(sorted(met)) for state, met in values.items()}
    return tuple(
        standardize(
            steps,
            Moments(
                np.array([known[state].mean for state in own]),
                np.array([known[state].std for state in own]),
            ),
        )
        for own, steps in zip(states, feedback, strict=True)
    )


def judge_advantages(
    consistency: Floats, counts: npt.NDArray[np.integer], normalization: Normalization
) -> Floats:
    """R^S_ij standardized over the m judgements of its step, or over all of one task's judgements.

    `consistency` [judgements] has those of all steps end to end, `counts` [steps] the m of each
    step; advantages [judgements] in the same order. The population std; where it is 0 there is no
    signal: 0."""
    if normalization == "task":
        return standardize(consistency, moments(consistency))
    advantages = np.zeros_like(consistency)
    m_of_step = np.repeat(counts, counts)
    # All steps with the same m at once, a row each: numpy costs by the call.
    for m in np.unique(m_of_step).tolist():
        steps = consistency[m_of_step == m].reshape(-1, m)
        over = moments(steps)
        by_row = Moments(over.mean[:, None], over.std[:, None])
        advantages[m_of_step == m] = standardize(steps, by_row).ravel()
    return advantages


def outcome_balance(won_steps: int, lost_steps: int) -> dict[int, float]:
    """Returns by outcome the weight that makes a task's won and lost episodes count the same.

    The steps of either have the same total. Not in the paper. Lost episodes are longer and, with a
    weak policy, more: at lambda = 1 the sign of R_i is the outcome's, so that "always -1" agrees
    with most steps. Twice the share of the *other* outcome's steps bounds the weights by 2, and is
    0 where a task has one outcome only: there is then nothing to tell apart."""
    total = max(won_steps + lost_steps, 1)
    return {1: 2 * lost_steps / total, -1: 2 * won_steps / total}


def check_rollouts(
    outcomes: Sequence[int] | npt.NDArray[np.integer], scores: Sequence[TrajectoryScores]
) -> None:
    """Raises ValueError with the place of what `task_signals` cannot take of O [G] and S_ij."""
    if len(outcomes) != len(scores):
        raise ValueError(f"{len(outcomes)} outcomes but scores of {len(scores)} trajectories")
    for row, (outcome, steps) in enumerate(zip(outcomes, scores, strict=True)):
        if outcome not in (-1, 1):
            raise ValueError(f"trajectory {row}: outcome {outcome} is neither -1 nor +1")
        try:
            flat = list(chain.from_iterable(steps))
        except TypeError:
            raise ValueError(
                f"trajectory {row}: give [steps][m], a list of scores a step"
            ) from None
        if sum(map(flat.count, (-1, 0, 1))) < len(flat):
            i = next(i for i, step in enumerate(steps) if any(s not in (-1, 0, 1) for s in step))
            raise ValueError(f"trajectory {row}, step {i}: a score is not -1, 0 or +1")


def task_signals(
    outcomes: Sequence[int] | npt.NDArray[np.integer],
    scores: Sequence[TrajectoryScores],
    settings: FeedbackSettings,
    rewards: Sequence[float | None] | None = None,
    states: Sequence[Sequence[Hashable]] | None = None,
    judge_name: str = "judge",
) -> TaskSignals:
    """Everything the rollout group of one task teaches, from O [G] and S_ij [G][steps][m] of one
    judge.

    rewards [G]: what the environment measured, which stands for O where `policy_reward` is
    "outcome" and all G have one; None: nothing beyond O. states [G][steps]: as in
    `policy_advantages`, only needed there. A step without judgements (m = 0) has R_i = O. Raises
    ValueError where outcomes, scores and states disagree in length, where an outcome is not -1 or
    +1, a score not -1, 0 or +1, or a reward not finite."""
    # Python's numbers, which are read one by one faster than numpy's.
    scores = [steps.tolist() if isinstance(steps, np.ndarray) else steps for steps in scores]
    check_rollouts(outcomes, scores)
    accuracy = task_accuracy(outcomes)
    unreadable = settings.unreadable
    mean_scores = [np.array([mean_score(s, unreadable) for s in steps]) for steps in scores]
    if unreadable == "missing":
        mean_scores = fill_missing(mean_scores, scores, settings.policy_comparison, states)

    if in_window(accuracy, settings.policy_window):
        # On one scale: an episode that broke off before its reward has its outcome alone.
        known = rewards is not None and None not in rewards
        if rewards and not all(reward is None or math.isfinite(reward) for reward in rewards):
            raise ValueError(f"a reward is a finite number or None: {list(rewards)}")
        measured = rewards if rewards and known else [None] * len(outcomes)
        policy = policy_advantages(
            [
                policy_feedback(int(outcome), mean, settings, reward)
                for outcome, mean, reward in zip(outcomes, mean_scores, measured, strict=True)
            ],
            settings.policy_comparison,
            states,
        )
    else:
        policy = tuple(np.zeros(len(steps)) for steps in scores)
    counts = np.array([len(step) for steps in scores for step in steps], dtype=np.intp)
    if in_window(accuracy, settings.judge_window):
        # R_i of all steps and S_ij of all judgements, end to end.
        agreed = np.concatenate(
            [
                integrated_feedback(int(outcome), mean, settings.judge_lambda)
                for outcome, mean in zip(outcomes, mean_scores, strict=True)
            ]
        )
        judged = list(chain.from_iterable(chain.from_iterable(scores)))
        consistency = consistency_feedback(np.repeat(agreed, counts), judged)
        judge = judge_advantages(consistency, counts, settings.judge_normalization)
        if settings.judge_balance == "outcome":
            outcome_of_step = np.repeat(outcomes, [len(steps) for steps in scores])
            won = outcome_of_step == 1
            weights = outcome_balance(int(won.sum()), int((~won).sum()))
            judge *= np.repeat(np.where(won, weights[1], weights[-1]), counts)
    else:
        judge = np.zeros(counts.sum())
    return TaskSignals(accuracy, policy, {judge_name: _nested(judge, counts, scores)})


def _nested(
    values: Floats, counts: npt.NDArray[np.integer], scores: Sequence[TrajectoryScores]
) -> tuple[tuple[Floats, ...], ...]:
    """Cuts values [judgements] of all steps, end to end, into [G][steps] arrays [m] as `scores`."""
    ends = np.cumsum(counts).tolist()
    cut = (values[end - m : end] for end, m in zip(ends, counts.tolist(), strict=True))
    return tuple(tuple(islice(cut, len(steps))) for steps in scores)
