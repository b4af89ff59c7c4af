"""Tasks from a file of JSON lines.

    {"id": "sum-1", "instruction": "What is 2 + 3?", "data": {"answer": 5}, "split": "train"}

`data` is for the program. Either all lines have a `split` or none does; in that case the tasks are
divided among the splits.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlanything.domains.base import DomainError, MissingData
from rlanything.records import Task
from rlanything.seeds import derive

_KEYS = frozenset({"id", "instruction", "data", "split", "kind"})
Row = Mapping[str, Any] | Task


@dataclass(frozen=True, slots=True)
class TaskSet:
    """All tasks, by split, in the order of the file."""

    place: str
    """Source of the tasks, for messages."""
    by_split: Mapping[str, Sequence[Task]]

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Returns `count` tasks of a split, or all if there are fewer. Raises `DomainError` for a
        split without tasks."""
        tasks = list(self.by_split.get(split, ()))
        if not tasks:
            known = ", ".join(name for name, members in self.by_split.items() if members)
            raise DomainError(
                f"{self.place}: split {split!r} has no tasks; use {known}; for "
                "held-out ones set evaluation.splits"
            )
        random.Random(derive(seed, "agent", split)).shuffle(tasks)
        return tasks[:count]


def read_tasks(source: str | Path | Sequence[Row], splits: Mapping[str, float]) -> TaskSet:
    """Returns the tasks of a file or of such objects. `splits`: share of each split if the lines do
    not name theirs. Raises `DomainError` with the line number for an invalid task."""
    place = str(source) if isinstance(source, str | Path) else "tasks"
    numbered = _lines(Path(source)) if isinstance(source, str | Path) else enumerate(source, 1)
    rows: dict[str, tuple[Task, str | None]] = {}
    for number, row in numbered:
        task, split = _task(f"{place}, line {number}", row)
        if task.id in rows:
            raise DomainError(
                f"{place}, line {number}: id {task.id!r} is used twice; give each task its own id"
            )
        rows[task.id] = (task, split)
    named = {split for _, split in rows.values() if split is not None}
    if not rows:
        raise DomainError(
            f'{place} holds no task; write lines like {{"id": "1", "instruction": "..."}}'
        )
    if not named:
        return TaskSet(place, _dealt([task for task, _ in rows.values()], splits))
    lacking = next((task.id for task, split in rows.values() if split is None), None)
    if lacking is not None:
        raise DomainError(f"{place}: task {lacking!r} names no split, others do; add it")
    by_split = {name: [t for t, own in rows.values() if own == name] for name in sorted(named)}
    return TaskSet(place, by_split)


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise MissingData(f"tasks: {path} cannot be read ({error.strerror}); name a file") from None
    except UnicodeDecodeError:
        raise DomainError(f"tasks: {path} is not UTF-8; save it as UTF-8") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DomainError(f"{path}, line {number}: not JSON ({error}); fix it") from None


def _task(place: str, row: Any) -> tuple[Task, str | None]:
    if isinstance(row, Task):
        row = {name: getattr(row, name) for name in ("id", "instruction", "kind", "data")}
    if not isinstance(row, Mapping):
        raise DomainError(f"{place}: a task is an object with id and instruction")
    row = {key: value for key, value in row.items() if not _is_missing(value)}
    if unknown := sorted(set(row) - _KEYS):
        raise DomainError(f"{place}: unknown key {unknown[0]!r}; put your own fields into `data`")
    for key in ("id", "instruction"):
        if not isinstance(row.get(key), str) or not row[key]:
            raise DomainError(f"{place}: {key} must be a text that is not empty")
    for key, kind in (("data", Mapping), ("split", str), ("kind", str)):
        if key in row and not isinstance(row[key], kind):
            raise DomainError(
                f"{place}: {key} must be {'an object' if key == 'data' else 'a text'}"
            )
    named = "".join(row.get(key, "") for key in ("id", "split", "kind"))
    if re.search("[\ud800-\udfff]", named):
        raise DomainError(f"{place}: {named!r:.80} cannot be stored: it has unpaired surrogates")
    task = Task(row["id"], row["instruction"], row.get("kind", ""), dict(row.get("data", {})))
    return task, row.get("split")


def _is_missing(value: Any) -> bool:
    """Returns whether a value is what table libraries write for a missing entry."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _dealt(tasks: Sequence[Task], splits: Mapping[str, float]) -> dict[str, list[Task]]:
    """Returns the tasks of each split. A task's split depends only on the set of all ids."""
    order = sorted(tasks, key=lambda task: hashlib.sha256(task.id.encode()).digest())
    dealt: dict[str, list[Task]] = {}
    start = 0
    share = 0.0
    for name, own in splits.items():
        share += own
        end = round(share * len(order))
        dealt[name] = order[start:end]
        start = end
    return dealt
