"""How good is the judge? It judges the same recorded episodes each time it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlanything.environments.base import Domain
from rlanything.evaluation.diagnostics import Diagnostics, diagnose, majority
from rlanything.evaluation.intervals import Interval, percentile_interval
from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.roles.judge import Critic
from rlanything.view import View

Recall = tuple[int, int, int, int]
"""Of one episode: good steps recognised, good steps, bad steps recognised, bad steps."""


@dataclass(frozen=True, slots=True)
class Examination:
    """One sitting: what the judge's answers say of it, and its recall on each episode."""

    diagnostics: Diagnostics
    recalls: dict[str, Recall]
    """By trajectory; those without labels are missing."""
    measures: dict[str, float | None]
    """What this kind of judge is measured by beyond that, by name."""


class JudgeExam:
    """Recorded held-out episodes with the oracle's step labels (Process Acc needs an oracle)."""

    def __init__(self, domain: Domain, trajectories: Sequence[Trajectory]) -> None:
        self.trajectories = trajectories
        self._labels = oracle_labels(domain, trajectories)

    def sit(self, judge: Critic, weight: float, seed: int, view: View) -> Examination:
        count = sum(len(each.steps) for each in self.trajectories) * judge.samples
        with view.phase("eval judge", count, "judgements") as progress:
            judged = judge.judge(self.trajectories, seed, progress)
        recalls = {
            each.trajectory.id: _recall(each, np.array(self._labels[each.trajectory.id]))
            for each in judged
            if each.trajectory.id in self._labels
        }
        return Examination(
            diagnose_judged(judged, self._labels, weight), recalls, judge.measures(judged)
        )


def _recall(judged: JudgedTrajectory, labels: np.ndarray) -> Recall:
    verdict = majority(np.array(judged.scores))[: len(labels)]
    good, bad = labels == 1, labels == -1
    right = verdict == labels
    counts = [int(each.sum()) for each in (right & good, good, right & bad, bad)]
    return counts[0], counts[1], counts[2], counts[3]


def balanced_gain(before: Mapping[str, Recall], after: Mapping[str, Recall]) -> Interval | None:
    """Balanced Process Acc after minus before, bootstrapped over the episodes of both; None without
    labels of both kinds."""
    shared = sorted(before.keys() & after.keys())
    if not shared:
        return None
    counts = np.array([[recalls[name] for name in shared] for recalls in (before, after)])
    # Episodes, not steps, are resampled: the steps of one episode stand or fall together.
    drawn = np.random.default_rng(0).integers(len(shared), size=(2000, len(shared)))
    sums = counts[:, drawn].sum(axis=2)
    if (sums[..., [1, 3]] == 0).any():
        return None
    balanced = (sums[..., 0] / sums[..., 1] + sums[..., 2] / sums[..., 3]) / 2
    whole = counts.sum(axis=1)
    estimate = (whole[:, 0] / whole[:, 1] + whole[:, 2] / whole[:, 3]) / 2
    return percentile_interval(float(estimate[1] - estimate[0]), balanced[1] - balanced[0])


def oracle_labels(domain: Domain, trajectories: Sequence[Trajectory]) -> dict[str, list[int]]:
    """The oracle's step labels by trajectory; those it cannot label are missing."""
    labels: dict[str, list[int]] = {}
    for each in trajectories:
        found = domain.oracle(each.task, each.steps)
        if found is not None:
            labels[each.id] = found
    return labels


def diagnose_judged(
    judged: Sequence[JudgedTrajectory], labels: Mapping[str, Sequence[int]], weight: float
) -> Diagnostics:
    """All judged steps in one table. `weight` is the judge's lambda."""
    scores = [step for each in judged for step in each.scores]
    outcomes = [each.trajectory.outcome for each in judged for _ in each.scores]
    truth = [
        label for each in judged for label in labels.get(each.trajectory.id, [0] * len(each.scores))
    ]
    return diagnose(scores, outcomes, truth, weight)
