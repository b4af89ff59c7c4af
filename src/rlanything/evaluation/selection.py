"""Best-of-n: of several attempts at a task, the one that the judge prefers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rlanything.algorithm.feedback import mean_score
from rlanything.evaluation.intervals import Interval, mean_over_tasks, paired_difference, wilson
from rlanything.records import JudgedTrajectory


@dataclass(frozen=True, slots=True)
class Selection:
    """Best of n, against an attempt taken at random. All with 95% intervals over tasks."""

    single: Interval
    """Success of an attempt taken at random."""
    chosen: Interval
    """Success of the attempts that the judge prefers."""
    gain: Interval
    """The second minus the first, paired by task."""
    possible: float
    """The share of tasks that some attempt won: no choice can be better."""


def best_of_n(judged: Sequence[JudgedTrajectory]) -> Selection | None:
    """Takes of each task's attempts the one with the highest mean score, the first of equals; None
    without any."""
    groups: dict[str, list[JudgedTrajectory]] = defaultdict(list)
    for attempt in judged:
        groups[attempt.trajectory.task.id].append(attempt)
    if not groups:
        return None
    shares = [
        sum(attempt.trajectory.outcome == 1 for attempt in group) / len(group)
        for group in groups.values()
    ]
    chosen = [max(group, key=_preference).trajectory.outcome == 1 for group in groups.values()]
    single, gain = mean_over_tasks(shares), paired_difference(shares, chosen)
    best = wilson(sum(chosen), len(chosen))
    assert single is not None
    assert gain is not None
    assert best is not None
    return Selection(single, best, gain, sum(share > 0 for share in shares) / len(shares))


def _preference(judged: JudgedTrajectory) -> float:
    scores = [mean_score(step) for step in judged.scores]
    return sum(scores) / len(scores) if scores else 0.0
