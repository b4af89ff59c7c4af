"""Learning curves of policy and judges: levels with 95% intervals, iteration by iteration."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rlanything.evaluation.counts import level
from rlanything.evaluation.intervals import Interval, mean_over_tasks
from rlanything.evaluation.judge_eval import AGREEING, BAD, GOOD
from rlanything.evaluation.success import widened
from rlanything.runs.report.history import History
from rlanything.runs.store.store import Store
from rlanything.runs.summary import BALANCED, OUTCOME, judge_measures, level_of, success

ACCURACIES = """
SELECT accuracy, COUNT(*) FROM groups JOIN trajectories USING (iteration, task)
WHERE iteration = ? AND NOT candidate GROUP BY task ORDER BY task"""
FAILED = "SELECT 1 FROM failures WHERE iteration = ? LIMIT 1"
UNPLAYED = """
SELECT DISTINCT task FROM failures WHERE iteration = ?1
AND task NOT IN (SELECT task FROM groups WHERE iteration = ?1)
AND task NOT IN (SELECT task FROM slot_events WHERE iteration = ?1 AND kind = 'rejected')"""
"""Active tasks without a single rollout that was played to its end."""


@dataclass(frozen=True, slots=True)
class Point:
    """An iteration (0: before training) and the value measured in or after it."""

    iteration: int
    estimate: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart."""

    name: str
    held_out: bool
    """Whether it was measured on held-out tasks; otherwise on the iteration's own rollouts."""
    points: tuple[Point, ...]


class Curves:
    """Reads curves from a store; caches computed points."""

    def __init__(self, store: Store, history: History) -> None:
        self.store, self._history = store, history
        self._known: dict[tuple[str, str, int], Interval | None] = {}

    def policy(self, splits: Sequence[str], iterations: Sequence[int]) -> list[Curve]:
        """Returns success by split, and of the rollouts of active tasks."""
        evaluated_iterations = self.store.evaluated_iterations()
        curves = [
            self._curve(
                split,
                True,
                [(t, ("held out", split, t)) for t in evaluated_iterations],
                lambda t, split=split: success(self.store.outcomes(t, split)),
            )
            for split in splits
        ]
        rollouts = [(t, ("rollouts", "success", t)) for t in iterations]
        curves.append(self._curve("rollouts", False, rollouts, self._accuracy))
        return [curve for curve in curves if curve.points]

    def judge(self, judge: str, iterations: Sequence[int]) -> list[Curve]:
        """Returns every measure of a judge's evaluation and of the rollouts."""
        evaluated_iterations = self.store.evaluated_iterations()
        counts = {t: self.store.judge_eval_counts(t, judge) for t in evaluated_iterations}
        measures = dict.fromkeys(
            name for t in evaluated_iterations for name in judge_measures(counts[t])
        )
        curves = [
            self._curve(
                name,
                True,
                [(t, (judge, name, t)) for t in evaluated_iterations],
                lambda t, name=name: level_of(counts[t], name),
            )
            for name in measures
        ]
        for name, counted in ((BALANCED, (GOOD, BAD)), (OUTCOME, (AGREEING,))):
            curves.append(
                self._curve(
                    f"{name}, rollouts",
                    False,
                    [(t, (judge, f"{name}, rollouts", t)) for t in iterations],
                    lambda t, counted=counted: level(self._history.counts(t, judge), counted),
                )
            )
        return [curve for curve in curves if curve.points]

    def _curve(
        self,
        name: str,
        held_out: bool,
        keys: Iterable[tuple[int, tuple[str, str, int]]],
        measure: Callable[[int], Interval | None],
    ) -> Curve:
        points: list[Point] = []
        for iteration, key in keys:
            if key not in self._known:
                self._known[key] = measure(iteration)
            interval = self._known[key]
            if interval is not None:
                points.append(Point(iteration, interval.estimate, interval.low, interval.high))
        return Curve(name, held_out, tuple(points))

    def _accuracy(self, iteration: int) -> Interval | None:
        """Returns the mean accuracy of the active tasks, with an interval that covers both outcomes
        of every rollout that is missing."""
        rows = self.store.query(ACCURACIES, iteration)
        measured = mean_over_tasks([accuracy for accuracy, _ in rows])
        if measured is None or not self.store.query(FAILED, iteration):
            return measured
        unplayed = len(self.store.query(UNPLAYED, iteration))
        recipe = json.loads(self.store.fact("recipe") or "{}")
        total = recipe.get("loop", {}).get("rollouts_per_task", 0)
        ends = (
            [s + (fate - s) * max(0, total - n) / max(total, n) for s, n in rows]
            + [fate] * unplayed
            for fate in (0.0, 1.0)
        )
        return widened(measured, *map(mean_over_tasks, ends))
