"""Tasks from a file of JSON lines.

    {"id": "sum-1", "instruction": "What is 2 + 3?", "data": {"answer": 5}, "split": "train"}

`data` is for the program. Either all lines have a `split` or none does; in that case the tasks are
divided among the splits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlanything.domains.base import DomainError
from rlanything.domains.rows import TaskSet, divided, read_lines
from rlanything.records import Task

_KEYS = frozenset({"id", "instruction", "data", "split", "kind"})
Row = Mapping[str, Any] | Task


def read_tasks(source: str | Path | Sequence[Row], splits: Mapping[str, float]) -> TaskSet:
    """Returns the tasks of a file or of such objects. `splits`: share of each split if the lines do
    not name theirs. Raises `DomainError` with the line number for an invalid task."""
    place = str(source) if isinstance(source, str | Path) else "tasks"
    file = isinstance(source, str | Path)
    numbered = read_lines(Path(source), "line") if file else enumerate(source, 1)
    rows: dict[str, tuple[Task, str | None]] = {}
    for number, row in numbered:
        task, split = _task(f"{place}, line {number}", row)
        if task.id in rows:
            raise DomainError(
                f"{place}, line {number}: id {task.id!r} is used twice; give each task its own id"
            )
        rows[task.id] = (task, split)
    if not rows:
        raise DomainError(
            f'{place} holds no task; write lines like {{"id": "1", "instruction": "..."}}'
        )
    lacking = next((task.id for task, split in rows.values() if split is None), None)
    if lacking is not None and any(split is not None for _, split in rows.values()):
        raise DomainError(f"{place}: task {lacking!r} names no split, others do; add it")
    return TaskSet("agent", "tasks", place, divided(rows.values(), splits))


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
