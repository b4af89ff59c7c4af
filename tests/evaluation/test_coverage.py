"""How often an interval of 95% holds the truth, for tasks drawn from many kinds of task pools.

The truth is what the policy would win of all tasks there are; a few of them are drawn and each is
played one to eight times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from rlanything.evaluation.intervals import (
    Floats,
    Interval,
    mean_over_tasks,
    paired_difference,
    wilson,
)

LEAST = 0.93
SAMPLES = 500
RATES = (0.02, 0.1, 0.3, 0.5, 0.85, 0.98)
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]
"""Draws each task's chance of being won [samples, tasks]."""


def chance(number: float) -> Draw:
    return lambda rng, shape: np.full(shape, number)


def either(share: float, one: float, other: float) -> Draw:
    """A share of the tasks has one chance, the rest the other."""
    return lambda rng, shape: np.where(rng.random(shape) < share, one, other)


def pools(rate: float) -> Mapping[str, Draw]:
    """Pools of tasks of which so many are won, from all alike to all certain."""
    spread: dict[str, Draw] = {
        f"correlation {rho}": lambda rng, shape, a=(1 - rho) / rho: rng.beta(
            rate * a, (1 - rate) * a, shape
        )
        for rho in (0.1, 0.5)
    }
    rare: dict[str, Draw] = {}
    if rate > 0.1:
        rare["a tenth always won"] = either(0.1, 1.0, (rate - 0.1) / 0.9)
    if rate < 0.9:
        rare["a tenth always lost"] = either(0.1, 0.0, rate / 0.9)
    return {"alike": chance(rate), "certain": either(rate, 1.0, 0.0)} | spread | rare


def held(shares: Floats, truth: float, interval: Callable[[Floats], Interval | None]) -> float:
    """How often the interval of shares [samples, ...] holds the truth; equal samples are computed
    once."""
    different, counts = np.unique(shares, axis=0, return_counts=True)
    hits = 0
    for row, count in zip(different, counts.tolist(), strict=True):
        measured = interval(row)
        assert measured is not None
        hits += count * (measured.low - 1e-12 <= truth <= measured.high + 1e-12)
    return hits / len(shares)


def test_trials_hold_the_truth_whatever_it_is() -> None:
    truths = np.linspace(0.02, 0.98, 193)
    for trials in range(5, 51):
        chances = np.zeros((trials + 1, len(truths)))
        chances[0] = 1.0
        for _ in range(trials):  # of so many successes after one trial more
            chances[1:] = chances[1:] * (1 - truths) + chances[:-1] * truths
            chances[0] *= 1 - truths
        ends = [wilson(successes, trials) for successes in range(trials + 1)]
        inside = np.array([[i.low <= t <= i.high for t in truths] for i in ends if i is not None])
        assert (chances * inside).sum(axis=0).min() >= 0.95, trials


@pytest.mark.parametrize("rollouts", [2, 8])
@pytest.mark.parametrize("tasks", [5, 8, 20, 50])
def test_success_over_tasks_is_held_whatever_the_tasks(tasks: int, rollouts: int) -> None:
    rng = np.random.default_rng(tasks * rollouts)
    for rate in RATES:
        for name, draw in pools(rate).items():
            won = rng.binomial(rollouts, draw(rng, (SAMPLES, tasks)))
            shares = np.sort(won, axis=1) / rollouts
            assert held(shares, rate, mean_over_tasks) >= LEAST, (rate, name)


def changes(rate: float) -> Iterator[tuple[str, Draw, Callable[[Floats], Floats], float]]:
    """Ways in which tasks change: their chances before, what makes of these those after, and the
    truth of the change."""
    for name, draw in pools(rate).items():
        yield f"nothing, {name}", draw, lambda before: before, 0.0
    yield "all a little", chance(rate), lambda before: before + 0.1 * (1 - rate), 0.1 * (1 - rate)
    lost = either(0.1, 0.0, rate)
    yield "a tenth learned", lost, lambda before: np.where(before == 0, 1.0, before), 0.1
    yield "a tenth forgotten", either(0.1, 1.0, rate), lambda b: np.where(b == 1, 0.0, b), -0.1


@pytest.mark.parametrize("rollouts", [1, 8])
@pytest.mark.parametrize("tasks", [5, 10, 50])
def test_a_paired_difference_is_held_however_tasks_change(tasks: int, rollouts: int) -> None:
    rng = np.random.default_rng(tasks * rollouts)
    for rate in (0.02, 0.3, 0.9):
        for name, draw, changed, truth in changes(rate):
            before = draw(rng, (SAMPLES, tasks))
            played = np.stack(
                [rng.binomial(rollouts, each) / rollouts for each in (before, changed(before))],
                axis=1,
            )
            share = held(played, truth, lambda pair: paired_difference(pair[0], pair[1]))
            assert share >= LEAST, (rate, name)
