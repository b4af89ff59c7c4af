"""The evaluation of the judge, on the same recorded episodes each time."""

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
"""The counts of a judge of steps against their labels: those of each kind that it recognised."""
AGREEING = "steps like the outcome"
"""Its count against the outcome of the episode (Outcome Acc), which needs no labels."""


@dataclass(frozen=True, slots=True)
class JudgeEvaluation:
    """The diagnostics of a judge's answers, and the counts of what it got right."""

    diagnostics: Diagnostics
    counts: dict[str, Counts]
    """By task: its episodes stand or fall together."""


class JudgeEvalSet:
    """Recorded held-out episodes with the labels of their steps, as far as there are any."""

    def __init__(
        self, trajectories: Sequence[Trajectory], labels: Mapping[str, Sequence[int]]
    ) -> None:
        """`labels` by trajectory; Process Acc is about these."""
        self.trajectories = trajectories
        self._labels = labels

    def evaluate(
        self, judge: Judge, weight: float, seed: int, progress: Progress
    ) -> JudgeEvaluation:
        count = sum(len(each.steps) for each in self.trajectories) * judge.samples
        with progress.phase("eval judge", count, "judgements") as advance:
            judged = judge.judge(self.trajectories, seed, advance)
        return evaluation_of(judge, judged, self._labels, weight)


def evaluation_of(
    judge: Judge,
    judged: Sequence[JudgedTrajectory],
    labels: Mapping[str, Sequence[int]],
    weight: float,
) -> JudgeEvaluation:
    """Returns what a judge's answers are worth against one source of labels. `labels` by
    trajectory; `weight` is the judge's lambda."""
    counts: dict[str, Counts] = {**judge.counts(judged)}
    if not isinstance(judge, UnitTestJudge):  # whose tests are counted by what they are
        for item, of_steps in _counts_of_steps(judged, labels).items():
            counts[item] = {**of_steps, **counts.get(item, {})}
    return JudgeEvaluation(diagnose_judged(judged, labels, weight), counts)


def _counts_of_steps(
    judged: Sequence[JudgedTrajectory], labels: Mapping[str, Sequence[int]]
) -> dict[str, Counts]:
    counts: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for episode in judged:
        if episode.scores and all(episode.scores):  # others were not judged
            own = counts[episode.trajectory.task.id]
            known = labels.get(episode.trajectory.id)
            for measure, (hits, total) in _recognised(episode, known).items():
                before = own.get(measure, (0, 0))
                own[measure] = (before[0] + hits, before[1] + total)
    return {**counts}


def _recognised(judged: JudgedTrajectory, known: Sequence[int] | None) -> Counts:
    """Counts one episode. `known`: the labels of its steps, where there are any."""
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
    judged = [episode for episode in judged if all(episode.scores)]  # others were not judged
    scores = [step for episode in judged for step in episode.scores]
    outcomes = [episode.trajectory.outcome for episode in judged for _ in episode.scores]
    truth: list[int] = []
    for episode in judged:
        truth.extend(labels.get(episode.trajectory.id, [0] * len(episode.scores)))
    return diagnose(scores, outcomes, truth, weight)
