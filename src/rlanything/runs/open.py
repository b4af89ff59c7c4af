"""Reads the data of a run: rows for pandas, records for code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from rlanything.runs.directory import check_run
from rlanything.runs.lineage import read_lineage
from rlanything.runs.paths import STORE
from rlanything.runs.store.store import Store
from rlanything.runs.store.stored import ForgottenError, StoredTrajectory

T = TypeVar("T")
Row = dict[str, Any]
"""Named values of one line of a table."""


def open_run(path: str | Path) -> RecordedRun:
    """Returns the run in a directory, even while it is training.

    Raises `RecipeError` if the directory is not a run's, `RunDirectoryError` if it contains links,
    `StoreError` for an unsupported store version."""
    check_run(Path(path))
    return RecordedRun(Path(path))


class RecordedRun:
    """The data of a run. Every method reads the store again, so that a running run can be
    watched."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"RecordedRun({str(self.path)!r})"

    @property
    def recipe(self) -> dict[str, Any]:
        """The resolved recipe as data."""
        return self._read(_recipe)

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return self._read(Store.finished)

    def check_values(self) -> None:
        """Raises `StoreError` if the store holds values that no run writes."""
        self._read(Store.check_values)

    def metrics(self) -> list[Row]:
        """Returns one row per iteration (0: before training): `iteration`, and every metric by its
        name; None if it was not measured."""
        history = self._read(Store.history)
        return [{"iteration": iteration, **values} for iteration, values in history.items()]

    def evaluations(self) -> list[Row]:
        """Returns one row per held-out episode: iteration, split, task, attempt, kind, outcome (0:
        it could not be played) and the number of its steps."""
        names = ("iteration", "split", "task", "attempt", "kind", "outcome", "steps")
        rows = self._query(f"SELECT {', '.join(names)} FROM evaluations ORDER BY 1, 2, 3, 4")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def tasks(self) -> list[Row]:
        """Returns one row per slot: its root and active task, accuracy, and the history of its
        candidates with their critics."""
        return self._read(read_lineage)

    def trajectories(self, iteration: int | None = None) -> list[StoredTrajectory]:
        """Returns the episodes of an iteration, or of all, with texts, judgements and advantages;
        without those whose texts `store.keep_iterations` has deleted."""
        return list(self.iterate_trajectories(iteration))

    def iterate_trajectories(self, iteration: int | None = None) -> Iterator[StoredTrajectory]:
        """Yields the rows of `trajectories`, one at a time."""
        with closing(Store(self.path / STORE)) as store:
            rows = store.query(
                "SELECT id FROM trajectories JOIN transcripts ON trajectory = number"
                " WHERE ?1 IS NULL OR iteration = ?1 ORDER BY number",
                iteration,
            )
            for (name,) in rows:
                try:
                    trajectory = store.trajectory(name)
                except ForgottenError:  # meanwhile, by the running run
                    continue
                yield trajectory

    def trajectory_count(self) -> int:
        """Returns the number of episodes whose texts are kept."""
        [(count,)] = self._query("SELECT COUNT(*) FROM transcripts")
        return count

    def instructions(self) -> dict[str, str]:
        """Returns the agent's instruction for each task."""
        return dict(self._query("SELECT id, instruction FROM tasks"))

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        return self._read(lambda store: store.query(sql))

    def _read(self, read: Callable[[Store], T]) -> T:
        with closing(Store(self.path / STORE)) as store, store.understanding():
            return read(store)


def _recipe(store: Store) -> dict[str, Any]:
    [(text,)] = store.query("SELECT value FROM run WHERE key = 'recipe'")
    return json.loads(text)
