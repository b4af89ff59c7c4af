"""The results of a grid, arm by arm, with intervals over seeds and held-out tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from rlanything.evaluation.crossed import (
    Counted,
    Hits,
    counted,
    crossed_difference,
    crossed_mean,
)
from rlanything.evaluation.intervals import Interval
from rlanything.evaluation.judge_eval import AGREEING, BAD, GOOD
from rlanything.evaluation.success import widened
from rlanything.roles.judges.unit_test import DETECT, UT
from rlanything.runs.store.store import Store
from rlanything_lab.ablation.arms import Arm
from rlanything_lab.ablation.grid import JUDGE, Cell

BEFORE = "before optimization"


@dataclass(frozen=True, slots=True)
class Reading:
    """The counts of one evaluation."""

    hits: dict[str, Hits]
    """Hits and totals of each kind, by item."""
    unplayable: dict[str, int] = field(default_factory=dict)
    """Number of unplayable episodes, by item, if there are any: neither won nor lost."""

    def with_fate(self, fate: int) -> dict[str, Hits]:
        """Returns the hits with unplayable episodes left out (0), lost (-1) or won (+1)."""
        if not fate:
            return self.hits
        return self.hits | {
            item: [(hits + count * (fate == 1), total + count) for hits, total in self.hits[item]]
            for item, count in self.unplayable.items()
        }


Reader: TypeAlias = Callable[[Store, int], Reading]
"""Reads a store's evaluation at an iteration."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the table."""

    name: str
    kinds: int
    read: Reader


@dataclass(frozen=True, slots=True)
class Row:
    """An arm after training, or all arms before it: the value of each measure, with its
    interval."""

    name: str
    seeds: tuple[int, ...]
    """The seeds whose runs have finished."""
    values: dict[str, Interval | None]
    against: str | None = None
    """The row that `differences` compares with, or None."""
    differences: dict[str, Interval | None] | None = None
    gains: dict[str, Interval | None] | None = None
    """Gains over the arm's own models before training."""


@dataclass(frozen=True, slots=True)
class Results:
    """The table: `before optimization`, then the arms in order."""

    measures: tuple[str, ...]
    rows: tuple[Row, ...]
    begins_apart: tuple[str, ...] = ()
    """Arms whose evaluation before training differs from the first row's."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measures_of(store: Store, splits: Sequence[str]) -> list[Measure]:
    """Returns the measures that a run has, in the order of the paper's tables."""
    played = {split: _success(split) for split in splits if store.outcomes(0, split)}
    before = store.judge_eval_counts(0, JUDGE)
    judged = {measure for counts in before.values() for measure in counts}
    if judged & {UT, DETECT}:
        measures: list[Measure] = []
        for split, read in played.items():
            measures.append(Measure(f"{split} Code", 1, read))
            measures += [Measure(f"{split} {m}", 1, _tests(split, m)) for m in (UT, DETECT)]
        return measures
    measures = [Measure(split, 1, read) for split, read in played.items()]
    if judged & {GOOD, BAD}:
        measures.append(Measure("judge Process Acc, balanced", 2, _judge((GOOD,), (BAD,))))
        measures.append(Measure("judge Process Acc", 1, _judge((GOOD, BAD))))
    if AGREEING in judged:
        measures.append(Measure("judge Outcome Acc", 1, _judge((AGREEING,))))
    return measures


def _success(split: str) -> Reader:
    def read(store: Store, iteration: int) -> Reading:
        counts: dict[str, Counter[int]] = defaultdict(Counter)
        for task, outcome in store.outcomes(iteration, split):
            counts[task][outcome] += 1
        return Reading(
            {task: [(own[1], own[1] + own[-1])] for task, own in counts.items()},
            {task: own[0] for task, own in counts.items() if own[0]},
        )

    return read


def _judge(*kinds: Sequence[str]) -> Reader:
    """Returns a reader of the judge's evaluation; each kind sums the counts of some names."""

    def read(store: Store, iteration: int) -> Reading:
        return Reading(
            {
                item: [_added(counts, names) for names in kinds]
                for item, counts in store.judge_eval_counts(iteration, JUDGE).items()
            }
        )

    return read


def _tests(split: str, measure: str) -> Reader:
    def read(store: Store, iteration: int) -> Reading:
        tasks = {task for task, _ in store.outcomes(0, split)}
        counts = _judge((measure,))(store, iteration).hits
        return Reading({task: hits for task, hits in counts.items() if task in tasks})

    return read


def _added(counts: Mapping[str, tuple[int, int]], names: Sequence[str]) -> tuple[int, int]:
    pairs = [counts.get(name, (0, 0)) for name in names]
    return sum(hits for hits, _ in pairs), sum(total for _, total in pairs)


_Readings: TypeAlias = Mapping[int, list[Reading]]
"""Readings by seed, one for each measure."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """The readings of one arm."""

    before: dict[int, list[Reading]]
    after: dict[int, list[Reading]]


def results_of(arms: Sequence[Arm], cells: Sequence[Cell]) -> Results:
    """Returns the table of the finished runs; empty without any."""
    measured: dict[str, _Measured] = {}
    measures: list[Measure] = []
    for cell in cells:
        if not cell.finished():
            continue
        with closing(Store(cell.store)) as store:
            measures = measures or measures_of(store, cell.recipe.splits)
            own = measured.setdefault(cell.arm, _Measured({}, {}))
            evaluated_iterations = store.evaluated_iterations()
            if evaluated_iterations:
                own.before[cell.seed] = [m.read(store, evaluated_iterations[0]) for m in measures]
                own.after[cell.seed] = [m.read(store, evaluated_iterations[-1]) for m in measures]
    present = [arm for arm in arms if arm.name in measured]
    if not present or not measures:
        return Results((), ())
    begun: dict[int, list[Reading]] = {}
    for arm in present:
        begun = measured[arm.name].before | begun
    rows = [_row(BEFORE, begun, measures)]
    for i, arm in enumerate(present):
        own = measured[arm.name]
        other = arm.against if arm.against in measured else None
        other = other or (present[i - 1].name if i else None)
        to = begun if other is None else measured[other].after
        rows.append(_row(arm.name, own.after, measures, other or BEFORE, to, own.before))
    apart = [
        arm.name
        for arm in present
        if any(begun[seed] != start for seed, start in measured[arm.name].before.items())
    ]
    return Results(tuple(m.name for m in measures), tuple(rows), tuple(apart))


def _row(
    name: str,
    after: _Readings,
    measures: Sequence[Measure],
    against: str | None = None,
    to: _Readings | None = None,
    before: _Readings | None = None,
) -> Row:
    return Row(
        name,
        tuple(sorted(after)),
        {m.name: _level(after, i, m) for i, m in enumerate(measures)},
        against,
        None if to is None else _differences(to, after, measures),
        None if before is None else _differences(before, after, measures),
    )


def _level(after: _Readings, index: int, measure: Measure) -> Interval | None:
    def under(fate: int) -> Interval | None:
        return crossed_mean(_table([(after, fate)], sorted(after), index, measure)[0])

    return _whatever_fate(under, [after], index)


def _differences(
    one: _Readings, two: _Readings, measures: Sequence[Measure]
) -> dict[str, Interval | None]:
    """Returns the differences over the seeds that both have, paired by seed and item."""
    seeds = sorted(one.keys() & two.keys())

    def difference(index: int, measure: Measure) -> Interval | None:
        def under(fate: int) -> Interval | None:
            return crossed_difference(*_table([(one, -fate), (two, fate)], seeds, index, measure))

        return _whatever_fate(under, [one, two], index)

    return {m.name: difference(i, m) for i, m in enumerate(measures)}


def _whatever_fate(
    under: Callable[[int], Interval | None], sides: Sequence[_Readings], index: int
) -> Interval | None:
    """Returns the measured value, with an interval that covers any outcome of unplayable episodes,
    so that no verdict depends on them."""
    measured = under(0)
    if measured is None or not any(
        own[index].unplayable for side in sides for own in side.values()
    ):
        return measured
    return widened(measured, under(-1), under(1))


def _table(
    sides: Sequence[tuple[_Readings, int]], seeds: Sequence[int], index: int, measure: Measure
) -> list[Counted]:
    """Returns the counts of each side, with an assumed outcome of its unplayable episodes, over the
    same seeds and items: the items of a seed that every side has."""
    counts = [[side[seed][index].with_fate(fate) for seed in seeds] for side, fate in sides]
    shared = [set.intersection(*map(_counted, of_seed)) for of_seed in zip(*counts, strict=True)]
    items = sorted(set[str]().union(*shared))
    paired = [
        [{i: own[i] for i in of_seed} for own, of_seed in zip(side, shared, strict=True)]
        for side in counts
    ]
    return [counted(side, items, measure.kinds) for side in paired]


def _counted(hits: Mapping[str, Hits]) -> set[str]:
    """Returns the items with counts."""
    return {item for item, own in hits.items() if any(total for _, total in own)}
