"""The gains from one evaluation to another, with intervals: the same tasks and the same judged
episodes, compared in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlanything.evaluation.counts import Counts, gain, level, pooled
from rlanything.evaluation.intervals import Interval, paired_difference
from rlanything.evaluation.judge_eval import AGREEING, BAD, GOOD
from rlanything.evaluation.success import success_interval, widened, won_shares
from rlanything.runs.store.store import Store

BALANCED = "balanced Process Acc"
"""The measure of a judge of steps: mean of the recall on good and on bad ones."""
OUTCOME = "Outcome Acc"
"""Another: how often it agreed with the outcome of the episode."""
OF_STEPS = {GOOD, BAD, AGREEING}
"""The counts that these two are made of, not shown one by one."""


@dataclass(frozen=True, slots=True)
class Gain:
    """One measure at the first and at the latest evaluation."""

    name: str
    """The split that the policy was measured on, or the measure of the judge."""
    before: Interval | None
    after: Interval | None
    change: Interval | None
    """Paired; None where the two have nothing in common."""
    unplayable: tuple[int, int] = (0, 0)
    """Episodes before and after that could not be played: the intervals hold their fates."""
    trained: bool = True
    """Whether anything was updated that could have changed it."""

    @property
    def verdict(self) -> str:
        """The change in words, by whether its 95% interval holds 0."""
        if self.change is None:
            return "not compared"
        if not self.trained:
            return "not trained"
        if self.change.low > 0:
            return "improved"
        if self.change.high < 0:
            return "got worse"
        return "not clearly improved (the 95% interval holds 0)"


def first_and_last(store: Store) -> tuple[int, int] | None:
    """Returns the iterations of the first and of the latest evaluation; None before any."""
    iterations = store.evaluated_iterations()
    return (iterations[0], iterations[-1]) if iterations else None


def success(played: Sequence[tuple[str, int]]) -> Interval | None:
    """Returns the share of won episodes; `played`: tasks and outcomes [episodes]."""
    return success_interval([task for task, _ in played], [outcome for _, outcome in played])


def paired(before: Sequence[tuple[str, int]], after: Sequence[tuple[str, int]]) -> Interval | None:
    """Returns the change of success over the tasks that both played; each (task, outcome)
    [episodes]. Of episodes that could not be played (outcome 0) the interval takes what speaks
    against a change: no verdict rests on them."""
    one, two = ([pair for pair in each if pair[1]] for each in (before, after))
    change = _change(one, two)
    if change is None or len(one) + len(two) == len(before) + len(after):
        return change
    ends = (_change(_with_fate(before, -fate), _with_fate(after, fate)) for fate in (-1, 1))
    return widened(change, *ends)


def _with_fate(played: Sequence[tuple[str, int]], fate: int) -> list[tuple[str, int]]:
    return [(task, outcome or fate) for task, outcome in played]


def _change(before: Sequence[tuple[str, int]], after: Sequence[tuple[str, int]]) -> Interval | None:
    one, two = (won_shares([t for t, _ in each], [o for _, o in each]) for each in (before, after))
    shared = sorted(one.keys() & two.keys())
    return paired_difference([one[task] for task in shared], [two[task] for task in shared])


def _unplayable(played: Sequence[tuple[str, int]]) -> int:
    return sum(outcome == 0 for _, outcome in played)


def policy_gains(store: Store, splits: Sequence[str]) -> list[Gain]:
    """Returns how success changed, split by split; nothing before the first evaluation."""
    iterations = first_and_last(store)
    if iterations is None:
        return []
    played = [[store.outcomes(iteration, split) for iteration in iterations] for split in splits]
    return [
        Gain(
            split,
            success(before),
            success(after),
            paired(before, after),
            (_unplayable(before), _unplayable(after)),
        )
        for split, (before, after) in zip(splits, played, strict=True)
    ]


def judge_measures(counts: Mapping[str, Counts]) -> dict[str, tuple[str, ...]]:
    """Returns what is counted for each measure that an evaluation has, by the measure's name."""
    counted = pooled(counts)
    measures = {BALANCED: (GOOD, BAD)} if {GOOD, BAD} <= counted.keys() else {}
    measures |= {name: (name,) for name in sorted(counted.keys() - OF_STEPS, reverse=True)}
    return measures | ({OUTCOME: (AGREEING,)} if AGREEING in counted else {})


def judge_gains(store: Store) -> list[Gain]:
    """Returns how every measure changed that both evaluations of the judge have."""
    iterations = first_and_last(store)
    if iterations is None:
        return []
    before, after = (store.judge_eval_counts(iteration) for iteration in iterations)
    later = judge_measures(after)
    updates = "SELECT 1 FROM metrics WHERE name = 'judge/updates' AND value > 0 LIMIT 1"
    trained = bool(store.query(updates))
    return [
        Gain(
            name,
            level(before, counted),
            level(after, counted),
            gain(before, after, counted),
            trained=trained,
        )
        for name, counted in judge_measures(before).items()
        if name in later
    ]


def level_of(counts: Mapping[str, Counts], measure: str) -> Interval | None:
    """Returns a judge's measure at one evaluation; None where it was not counted."""
    counted = judge_measures(counts).get(measure)
    return level(counts, counted) if counted else None
