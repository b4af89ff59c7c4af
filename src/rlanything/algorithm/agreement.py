"""lambda of Eq. 1 by judge, adapted to how clearly its scores agree with outcomes
(`feedback.policy_lambda_control: adaptive`)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from rlanything.algorithm.feedback import TrajectoryScores, mean_score

Agreement: TypeAlias = tuple[float, float]
"""Sums of S_i O and of O^2 over the steps of one task, both less their mean among the trajectories
compared with each other."""
Agreements: TypeAlias = Mapping[str, Mapping[str, Agreement]]
"""Agreements by judge and task."""

ITERATIONS = 10
"""Number of latest iterations that lambda is measured on."""


def agreement(
    outcomes: Sequence[int], scores: Sequence[TrajectoryScores], last: bool = False
) -> Agreement | None:
    """Returns a judge's agreement with O [G] on one task, from its scores S_ij [G][steps][m]; None
    if no step of a won trajectory can be compared with one of a lost trajectory.

    Steps are compared at the same index: won trajectories are shorter, and judges may like early
    steps better. `last`: whether last steps count; a judge may see the outcome after them.
    Unreadable scores are missing."""
    places: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for outcome, steps in zip(outcomes, scores, strict=True):
        for i, given in enumerate(steps if last else steps[:-1]):
            if any(given):
                places[i].append((mean_score(given), outcome))
    products: list[float] = []
    squares: list[float] = []
    for pairs in places.values():
        score = math.fsum(mean for mean, _ in pairs) / len(pairs)
        outcome = sum(own for _, own in pairs) / len(pairs)
        products += [(mean - score) * (own - outcome) for mean, own in pairs]
        squares += [(own - outcome) ** 2 for _, own in pairs]
    # Exactly rounded sums: their bits do not depend on the order of trajectories and tasks.
    return (math.fsum(products), math.fsum(squares)) if any(squares) else None


def agreements(episodes: Iterable[tuple[str, int, Mapping[str, TrajectoryScores]]]) -> Agreements:
    """Returns the agreements in episodes, each with task, outcome, and scores by judge. Last steps
    count only if no episode has another: those of short tasks must not speak for long ones."""
    groups: dict[str, dict[str, tuple[list[int], list[TrajectoryScores]]]] = {}
    last = True
    for task, outcome, scores in episodes:
        for judge, own in scores.items():
            outcomes, given = groups.setdefault(judge, {}).setdefault(task, ([], []))
            outcomes.append(outcome)
            given.append(own)
            last = last and len(own) < 2
    return {
        judge: {task: one for task, group in tasks.items() if (one := agreement(*group, last))}
        for judge, tasks in groups.items()
    }


def shrinkage(tasks: Sequence[Agreement]) -> float:
    """Returns the factor max(0, 1 - (se / b)^2) of positive-part James-Stein shrinkage; 0 unless
    b > 0.

    b is the slope of scores on outcomes, mu - 1 of Theorem 1 within tasks and step indices; se is
    its standard error, clustered by task. Fewer than two tasks give 0: a judge at chance must not
    cost anything, so outcomes alone train until scores have agreed with them. One iteration has too
    few tasks to tell a good judge from chance where wins are few, so the latest ones are pooled."""
    total = math.fsum(product for product, _ in tasks)
    if len(tasks) < 2 or total <= 0:
        return 0.0
    slope = total / math.fsum(square for _, square in tasks)
    errors = math.fsum((product - slope * square) ** 2 for product, square in tasks)
    return max(0.0, 1 - len(tasks) / (len(tasks) - 1) * errors / total**2)


def adapted(
    policy_lambda: float, measured: Mapping[int, Agreements], iteration: int
) -> dict[str, float]:
    """Returns lambda of each judge in an iteration, from the agreements by iteration."""
    lambdas: dict[str, float] = {}
    for judge in measured[iteration]:
        sums: dict[str, Agreement] = {}
        for i in range(iteration - ITERATIONS + 1, iteration + 1):
            for task, (product, square) in measured.get(i, {}).get(judge, {}).items():
                before = sums.get(task, (0.0, 0.0))
                sums[task] = (before[0] + product, before[1] + square)
        lambdas[judge] = policy_lambda * shrinkage([*sums.values()])
    return lambdas


def weighed(
    lambdas: Mapping[str, float], weights: Mapping[str, float]
) -> tuple[float, dict[str, float]]:
    """Returns the lambda and the weights by judge with which Eq. 1 becomes R_i = O + sum_k w_k
    lambda_k mean_j S^k_ij / sum_k w_k. Judges whose lambda is 0 are left out, unless all are."""
    given = {name: weights.get(name, 1.0) for name in lambdas}
    own = {name: weight * lambdas[name] for name, weight in given.items() if lambdas[name]}
    return (sum(own.values()) / sum(given.values()), own) if own else (0.0, given)
