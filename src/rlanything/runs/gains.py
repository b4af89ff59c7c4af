"""What improved between two sittings, by how much, and how sure that is: the same tasks and the
same judged episodes, compared in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlanything.evaluation.counts import Counts, gain, level, pooled
from rlanything.evaluation.intervals import Interval, paired_difference
from rlanything.evaluation.judge_eval import AGREEING, BAD, GOOD
from rlanything.evaluation.success import success_interval, won_shares
from rlanything.runs.store.store import Store

BALANCED = "balanced Process Acc"
"""Of a judge of steps: the mean of what it recognised of good and of bad ones."""
OUTCOME = "Outcome Acc"
"""Of a judge of steps: how often it agreed with how the episode ended."""
OF_STEPS = {GOOD, BAD, AGREEING}
"""What these two are made of: not shown one by one."""


@dataclass(frozen=True, slots=True)
class Gain:
    """One measure at two sittings."""

    name: str
    """The split that the policy was measured on, or the measure of the judge."""
    before: Interval | None
    after: Interval | None
    change: Interval | None
    """Paired; None where the two have nothing in common."""


def verdict(change: Interval) -> str:
    """In words, by whether the 95% interval holds 0."""
    if change.low > 0:
        return "improved"
    if change.high < 0:
        return "got worse"
    return "not clearly improved (the 95% interval holds 0)"


def success(played: Sequence[tuple[str, int]]) -> Interval | None:
    """Of tasks and outcomes [episodes], as the store has them."""
    return success_interval([task for task, _ in played], [outcome for _, outcome in played])


def paired(before: Sequence[tuple[str, int]], after: Sequence[tuple[str, int]]) -> Interval | None:
    """The change of success over the tasks that both played; each (task, outcome) [episodes]."""
    one, two = (won_shares([t for t, _ in each], [o for _, o in each]) for each in (before, after))
    shared = sorted(one.keys() & two.keys())
    return paired_difference([one[task] for task in shared], [two[task] for task in shared])


def policy_gain(store: Store, split: str, first: int, last: int) -> Gain:
    """Between the sittings after two iterations."""
    before, after = store.outcomes(first, split), store.outcomes(last, split)
    return Gain(split, success(before), success(after), paired(before, after))


def judge_measures(counts: Mapping[str, Counts]) -> dict[str, tuple[str, ...]]:
    """By the name of each measure that a sitting has, what is counted for it."""
    counted = pooled(counts)
    measures = {BALANCED: (GOOD, BAD)} if {GOOD, BAD} <= counted.keys() else {}
    measures |= {name: (name,) for name in sorted(counted.keys() - OF_STEPS, reverse=True)}
    return measures | ({OUTCOME: (AGREEING,)} if AGREEING in counted else {})


def judge_gains(before: Mapping[str, Counts], after: Mapping[str, Counts]) -> list[Gain]:
    """Of every measure that both sittings have."""
    later = judge_measures(after)
    return [
        Gain(name, level(before, counted), level(after, counted), gain(before, after, counted))
        for name, counted in judge_measures(before).items()
        if name in later
    ]


def level_of(counts: Mapping[str, Counts], measure: str) -> Interval | None:
    """A judge's measure at one sitting; None where it was not counted."""
    counted = judge_measures(counts).get(measure)
    return level(counts, counted) if counted else None
