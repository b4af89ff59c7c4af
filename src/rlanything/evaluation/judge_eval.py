"""Evaluation of the judge on a fixed set of recorded episodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlanything.evaluation.counts import Counts
from rlanything.evaluation.diagnostics import Diagnostics, diagnose, majority
from rlanything.progress import Progress
from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.roles.judges.base import Judge
from rlanything.roles.judges.unit_test import UnitTestJudge

GOOD, BAD = "good steps", "bad steps"
"""Measures against step labels: recognised steps of each kind."""
AGREEING = "steps like the outcome"
"""Measure against the episode's outcome (Outcome Acc), which needs no labels."""


@dataclass(frozen=True, slots=True)
class JudgeEvaluation:
    """The diagnostics of a judge's answers, and the counts of its hits."""

    diagnostics: Diagnostics
    counts: dict[str, Counts]
    """Counts by task, the sampling unit."""


class JudgeEvalSet:
    """Recorded held-out episodes with their step labels, if there are any."""

    def __init__(
        self, trajectories: Sequence[Trajectory], labels: Mapping[str, Sequence[int]]
    ) -> None:
        """`labels`: step labels by trajectory, for Process Acc."""
        self.trajectories = trajectories
        self._labels = labels

    def evaluate(
        self, judge: Judge, weight: float, seed: int, progress: Progress
    ) -> JudgeEvaluation:
        count = sum(len(trajectory.steps) for trajectory in self.trajectories) * judge.samples
        with progress.phase("eval judge", count, "judgements") as advance:
            judged = judge.judge(self.trajectories, seed, advance)
        return evaluation_of(judge, judged, self._labels, weight)


def evaluation_of(
    judge: Judge,
    judged: Sequence[JudgedTrajectory],
    labels: Mapping[str, Sequence[int]],
    weight: float,
) -> JudgeEvaluation:
    """Returns the evaluation of a judge's answers against one source of labels. `labels`: step
    labels by trajectory; `weight`: the judge's lambda."""
    counts: dict[str, Counts] = {**judge.counts(judged)}
    if not isinstance(judge, UnitTestJudge):  # which counts its tests itself
        for item, of_steps in _counts_of_steps(judged, labels).items():
            counts[item] = {**of_steps, **counts.get(item, {})}
    return JudgeEvaluation(diagnose_judged(judged, labels, weight), counts)


def _counts_of_steps(
    judged: Sequence[JudgedTrajectory], labels: Mapping[str, Sequence[int]]
) -> dict[str, Counts]:
    counts: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for episode in judged:
        if episode.scores and all(episode.scores):  # every step was judged
            own = counts[episode.trajectory.task.id]
            known = labels.get(episode.trajectory.id)
            for measure, (hits, total) in _recognised(episode, known).items():
                before = own.get(measure, (0, 0))
                own[measure] = (before[0] + hits, before[1] + total)
    return {**counts}


def _recognised(judged: JudgedTrajectory, known: Sequence[int] | None) -> Counts:
    """Counts one episode. `known`: its step labels; None: there are none."""
    verdict = majority(np.array(judged.scores))
    agreeing = {AGREEING: (int((verdict == judged.trajectory.outcome).sum()), len(verdict))}
    if known is None:
        return agreeing
    labels = np.array(known)
    right = verdict == labels
    return agreeing | {
        name: (int((right & of_kind).sum()), int(of_kind.sum()))
        for name, of_kind in ((GOOD, labels == 1), (BAD, labels == -1))
    }


def diagnose_judged(
    judged: Sequence[JudgedTrajectory], labels: Mapping[str, Sequence[int]], weight: float
) -> Diagnostics:
    """Returns the diagnostics of all judged steps in one table. `weight` is the judge's lambda."""
    judged = [episode for episode in judged if all(episode.scores)]  # every step was judged
    scores = [step for episode in judged for step in episode.scores]
    outcomes = [episode.trajectory.outcome for episode in judged for _ in episode.scores]
    truth: list[int] = []
    for episode in judged:
        truth.extend(labels.get(episode.trajectory.id, [0] * len(episode.scores)))
    return diagnose(scores, outcomes, truth, weight)
