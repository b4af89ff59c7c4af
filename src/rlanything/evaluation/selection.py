"""Best-of-n: of several attempts at a task, the one that the judge prefers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from rlanything.algorithm.feedback import mean_score
from rlanything.evaluation.intervals import Interval, mean_over_tasks, paired_difference
from rlanything.evaluation.success import widened
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


def best_of_n(
    judged: Sequence[JudgedTrajectory], unplayable: Sequence[str] = ()
) -> Selection | None:
    """Takes of each task's attempts the one with the highest mean score, the first of equals; None
    without any.

    `unplayable`: the task of every attempt that could not be played. They are left out, and the
    intervals hold those with all of them preferred and lost, and preferred and won."""
    groups: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for attempt in judged:
        won = attempt.trajectory.outcome == 1
        groups[attempt.trajectory.task.id].append((_preference(attempt), won))
    if not groups:
        return None
    measured = _selection(groups)
    for fate in (False, True) if unplayable else ():
        whole = defaultdict(list, {task: list(group) for task, group in groups.items()})
        for task in unplayable:
            whole[task].append((math.inf, fate))
        end = _selection(whole)
        measured = Selection(
            widened(measured.single, end.single),
            widened(measured.chosen, end.chosen),
            widened(measured.gain, end.gain),
            measured.possible,
        )
    return measured


def _selection(groups: Mapping[str, Sequence[tuple[float, bool]]]) -> Selection:
    """Returns the figures of attempts by task: the judge's preference, and whether it was won."""
    shares = [sum(won for _, won in group) / len(group) for group in groups.values()]
    chosen = [max(group, key=itemgetter(0))[1] for group in groups.values()]
    single, gain = mean_over_tasks(shares), paired_difference(shares, chosen)
    best = mean_over_tasks(chosen)
    assert single is not None
    assert gain is not None
    assert best is not None
    return Selection(single, best, gain, sum(share > 0 for share in shares) / len(shares))


def _preference(judged: JudgedTrajectory) -> float:
    scores = [mean_score(step) for step in judged.scores]
    return sum(scores) / len(scores) if scores else 0.0
