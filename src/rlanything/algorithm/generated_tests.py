"""Signals of coding: rewards of programs and of the judge's generated tests (the paper, 2.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rlanything.algorithm.feedback import FeedbackSettings, Floats, moments, standardize
from rlanything.algorithm.signals import TaskSignals, in_window, task_signals

UNREADABLE_TEST = -1.0
"""Reward of a generated test without any known score: no better than the worst readable one."""


def unit_test_feedback(outcomes: npt.ArrayLike, scores: npt.ArrayLike) -> Floats:
    """The reward of each of m generated tests [m], from O [G] and the scores [G, m] of programs on
    tests: 1 - p if all correct programs pass it, else -p, with p the share of the wrong ones that
    do; -1, the least that a readable one earns, for an unreadable test. It equals p_c + p_d
    - 1, the mu of Theorem 1.

    Without wrong programs it is 1 or -1, as if a wrong one passed what the correct ones do not.
    Without correct ones a good test cannot be distinguished from a bad one: all 0. A score of 0 for
    a test that ran on other programs is unknown and not counted; if it is unknown for all correct
    programs, the test earns 0."""
    outcome, score = np.asarray(outcomes), np.asarray(scores)
    correct, wrong = score[outcome == 1], score[outcome == -1]
    if not len(correct):
        return np.zeros(score.shape[1])
    valid = np.where((correct == 1).any(axis=0) & (correct != -1).all(axis=0), 1.0, 0.0)
    known = (wrong != 0).sum(axis=0)
    passed = (wrong == 1).sum(axis=0)
    passed_by_wrong = np.where(known, passed / np.maximum(known, 1), 1.0 - valid)
    # The paper's -p would be 0 for a test that no program can pass because it cannot be read.
    earned = np.where((correct != 0).any(axis=0), valid - passed_by_wrong, 0.0)
    return np.where((score == 0).all(axis=0), UNREADABLE_TEST, earned)


def unit_test_signals(
    outcomes: Sequence[int] | npt.NDArray[np.integer],
    scores: npt.ArrayLike,
    settings: FeedbackSettings,
    rewards: Sequence[float | None] | None = None,
    lengths: Sequence[Sequence[int]] | None = None,
) -> TaskSignals:
    """Returns the same as `task_signals` for episodes of one step whose m judgements are tests that
    all of them share: scores [G, m]. The first trajectory has the judge's advantages,
    `unit_test_feedback` standardized over the task's tests; the others have 0."""
    table = np.asarray(scores)
    # All programs of a task are written in the same state.
    states = [("",)] * len(table)
    steps = list(table[:, None, :])
    signals = task_signals(outcomes, steps, settings, rewards, states, lengths=lengths)
    advantages = np.zeros(table.shape[1])
    if in_window(signals.accuracy, settings.judge_window):
        earned = unit_test_feedback(outcomes, table)
        advantages = standardize(earned, moments(earned))
    rest = tuple((np.zeros(table.shape[1]),) for _ in table[1:])
    judges = dict.fromkeys(signals.judges, ((advantages,), *rest))
    return TaskSignals(signals.accuracy, signals.policy, judges)
