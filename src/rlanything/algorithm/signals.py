"""Signals: the advantages of one task's rollout group for the policy and for each judge.

The recipe's functions decide (`feedback.advantage`, `feedback.judge_reward`); tasks whose accuracy
is outside a role's window do not train it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rlanything.algorithm.advantages import AdvantageInputs, StepKeys
from rlanything.algorithm.feedback import (
    FeedbackSettings,
    Floats,
    TrajectoryScores,
    integrated_feedback,
    mean_score,
)
from rlanything.algorithm.options import FunctionConfig
from rlanything.algorithm.rewards import RewardInputs
from rlanything.plugins import PluginError

Outcomes: TypeAlias = Sequence[int] | npt.NDArray[np.integer]
"""O, [G]."""
GroupScores: TypeAlias = Sequence[TrajectoryScores]
"""S_ij of one judge, [G][steps][m]."""
StepAdvantages: TypeAlias = Floats | tuple[Floats, ...]
"""Advantages of a trajectory: an array [steps], or an array [tokens] for each step."""


@dataclass(frozen=True, slots=True)
class TaskSignals:
    """The advantages of the rollout group of one task. An advantage of exactly 0 does not train."""

    accuracy: float
    policy: tuple[StepAdvantages, ...]
    """Advantages, [G]; all 0 if the accuracy is outside the policy's window."""
    judges: Mapping[str, tuple[tuple[Floats, ...], ...]]
    """Advantages by judge, [G][steps] arrays [m]; all 0 if the accuracy is outside the judges'
    window."""


def task_signals(
    outcomes: Outcomes,
    scores: GroupScores | Mapping[str, GroupScores],
    settings: FeedbackSettings,
    rewards: Sequence[float | None] | None = None,
    states: StepKeys | None = None,
    *,
    weights: Mapping[str, float] = MappingProxyType({}),
    values: Sequence[Sequence[float]] | None = None,
    lengths: Sequence[Sequence[int]] | None = None,
    grades: Mapping[str, GroupScores] = MappingProxyType({}),
    gains: Sequence[Sequence[float]] | None = None,
) -> TaskSignals:
    """Returns the signals of one task's rollout group from O [G] and the scores S_ij [G][steps][m],
    given for the judge `judge` or by the name of each judge.

    rewards [G]: the environment's own, used in place of O if `policy_reward` is "outcome" and all G
    have one. weights: weights of the judges in the mean score of a step, 1 by default. states,
    values, lengths: as in `AdvantageInputs`, for advantages that need them. grades: those of judges
    that value states, [G][steps][m] by name; they give `state_values`, and these judges' scores are
    no part of R_i. gains: as in `RewardInputs`. A step without judgements (m = 0) has R_i = O.
    Raises ValueError if outcomes, scores and states disagree in length, an outcome is not -1 or +1,
    a score not -1, 0 or +1, or a reward not finite, or lambda adaptive, which one task cannot
    measure, and `PluginError` for an advantage or a reward that lacks an input."""
    if settings.policy_lambda_control == "adaptive":
        raise ValueError(
            "policy_lambda_control: adaptive is measured over many tasks; give "
            "settings.with_lambda(...) the lambda that `algorithm.agreement` returns for them"
        )
    by_judge = scores if isinstance(scores, Mapping) else {"judge": scores}
    # Python numbers: reading them one by one is faster than with numpy's.
    listed = {
        name: [steps.tolist() if isinstance(steps, np.ndarray) else steps for steps in group]
        for name, group in by_judge.items()
    }
    for group in listed.values():
        check_rollouts(outcomes, group)
    # Keeps one scale: an episode that ended before its reward has only its outcome.
    measured = [reward for reward in rewards or () if reward is not None]
    if not all(map(math.isfinite, measured)):
        raise ValueError(f"a reward is a finite number or None: {list(rewards or ())}")
    outcomes = [int(outcome) for outcome in outcomes]
    accuracy = task_accuracy(outcomes)
    scoring = {name: group for name, group in listed.items() if name not in grades}
    if grades:
        values = state_values(outcomes, list(grades.values()))
        scoring = scoring or {"": [[()] * (len(row) - 1) for row in values]}
    inputs = AdvantageInputs(
        outcomes=outcomes,
        scores=scoring,
        weights={name: weights.get(name, 1.0) for name in scoring},
        settings=settings,
        rewards=measured if rewards and len(measured) == len(rewards) else None,
        values=values,
        states=states,
        lengths=lengths,
    )
    if in_window(accuracy, settings.policy_window):
        policy = policy_advantages(inputs)
    else:
        policy = tuple(np.zeros(steps) for steps in inputs.steps)
    judges = {
        name: judge_advantages(outcomes, group, settings, grades.get(name), gains)
        for name, group in listed.items()
    }
    return TaskSignals(accuracy, policy, judges)


def state_values(outcomes: Outcomes, grades: Sequence[GroupScores]) -> list[list[float]]:
    """Returns V of the state before each step and after the last, [G][steps + 1], from the grades
    that each judge gives the state after each step, [G][steps][m].

    V is the expected outcome: the mean grade, scaled from 0..10 to -1..1. All rollouts of a task
    begin in the same state, whose V is their mean outcome. After the last step nothing is left to
    win: V is 0. A state without a readable grade keeps the V of the state before."""
    start = sum(outcomes) / len(outcomes)
    values: list[list[float]] = []
    for of_judges in zip(*grades, strict=True):
        own = [float(start)]
        for answers in zip(*of_judges, strict=True):
            readable = [grade for given in answers for grade in given if grade >= 0]
            own.append(sum(readable) / len(readable) / 5 - 1 if readable else own[-1])
        values.append([*own[:-1], 0.0])
    return values


def policy_advantages(inputs: AdvantageInputs) -> tuple[StepAdvantages, ...]:
    """Returns the policy's advantages, regardless of the task's accuracy.

    Raises `PluginError` for a missing input and for advantages that do not match the steps."""
    advantage = inputs.settings.advantage
    place = f"advantage {advantage.name}"
    _check_needs(advantage, inputs)
    for name in advantage.needs:
        spare = name == "values"
        if [len(row) - spare for row in getattr(inputs, name)] != inputs.steps:
            raise ValueError(f"{place} needs {name} of every step: give [G][steps{' + 1' * spare}]")
    returned = advantage.function(inputs)
    try:
        given = [list(row) for row in returned]
    except TypeError:
        raise PluginError(f"{place}: return a list for each of the trajectories") from None
    if len(given) != len(inputs.outcomes):
        raise PluginError(f"{place} returned {len(given)} trajectories of {len(inputs.outcomes)}")
    return tuple(_of_trajectory(place, row, of_steps, inputs) for row, of_steps in enumerate(given))


def _check_needs(function: FunctionConfig, inputs: AdvantageInputs | RewardInputs) -> None:
    for name in function.needs:
        if getattr(inputs, name) is None:
            given = f"{function.kind} {function.name} needs {name}, and there are none"
            raise PluginError(f"{given}: choose another {function.kind}")


def _of_trajectory(
    place: str, row: int, given: Floats | Sequence[Floats], inputs: AdvantageInputs
) -> StepAdvantages:
    """Returns a trajectory's advantages as an array [steps], or an array [tokens] for each step."""
    steps = inputs.steps[row]
    if any(map(np.ndim, given)):
        advantages = tuple(np.asarray(of_step, dtype=np.float64) for of_step in given)
        responses = [(tokens,) for tokens in inputs.lengths[row]] if inputs.lengths else None
        fits = [of_step.shape for of_step in advantages] == responses
        finite = all(np.isfinite(of_step).all() for of_step in advantages)
    else:
        advantages = np.array(given, dtype=np.float64)
        fits = advantages.shape == (steps,)
        finite = np.isfinite(advantages).all()
    if not fits:
        raise PluginError(
            f"{place}: return an advantage for each of the {steps} steps of trajectory {row}, or "
            "for each token of each response"
        )
    if not finite:
        raise PluginError(f"{place}: an advantage of trajectory {row} is not finite")
    return advantages


def judge_advantages(
    outcomes: Sequence[int],
    scores: GroupScores,
    settings: FeedbackSettings,
    grades: GroupScores | None = None,
    gains: Sequence[Sequence[float]] | None = None,
) -> tuple[tuple[Floats, ...], ...]:
    """Returns a judge's advantages for its own scores and grades [G][steps][m]; all 0 if the
    accuracy is outside the judges' window."""
    if not in_window(task_accuracy(outcomes), settings.judge_window):
        return tuple(tuple(np.zeros(len(step)) for step in steps) for steps in scores)
    feedback = [
        integrated_feedback(
            outcome,
            [mean_score(step, settings.unreadable) for step in steps],
            settings.judge_lambda,
        )
        for outcome, steps in zip(outcomes, scores, strict=True)
    ]
    reward, inputs = settings.judge_reward, RewardInputs(outcomes, scores, feedback, grades, gains)
    _check_needs(reward, inputs)
    given = reward.function(inputs)
    if [list(map(len, steps)) for steps in given] != [list(map(len, steps)) for steps in scores]:
        raise PluginError(f"reward {reward.name}: return an advantage for each judgement")
    return tuple(map(tuple, given))


def task_accuracy(outcomes: Outcomes) -> float:
    """The fraction of a task's rollouts with O = +1. Raises ValueError without rollouts."""
    if len(outcomes) == 0:
        raise ValueError("a task without rollouts has no accuracy")
    return sum(1 for outcome in outcomes if outcome == 1) / len(outcomes)


def in_window(accuracy: float, window: tuple[float, float]) -> bool:
    """Returns whether a task of this accuracy trains; the window includes both ends."""
    return window[0] <= accuracy <= window[1]


def check_rollouts(outcomes: Outcomes, scores: GroupScores) -> None:
    """Raises ValueError, with the place, for O [G] and S_ij that `task_signals` does not accept."""
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
