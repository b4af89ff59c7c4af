from __future__ import annotations

from pathlib import Path

import pytest

from rlanything.domains.base import DomainError, MissingData
from rlanything.domains.rows import TaskSet, divided, read_lines
from rlanything.records import Task

TASKS = [Task(str(number), "", "", {}) for number in range(10)]


def test_shares_divide_tasks_by_their_ids_alone() -> None:
    shares = {"train": 0.7, "in_domain": 0.2}
    parts = divided([(task, None) for task in TASKS], shares)
    assert {name: len(part) for name, part in parts.items()} == {"train": 7, "in_domain": 2}
    assert divided([(task, None) for task in reversed(TASKS)], shares) == parts
    members = [task.id for part in parts.values() for task in part]
    assert len({*members}) == len(members)


def test_splits_that_tasks_name_count_instead_of_shares() -> None:
    named = [(task, "odd" if int(task.id) % 2 else "even") for task in TASKS]
    parts = divided(named, {"train": 1.0})
    assert parts == {"even": TASKS[::2], "odd": TASKS[1::2]}


def test_a_split_without_tasks_is_refused_with_those_that_have_some() -> None:
    rows = TaskSet("odd", "rows", "a.jsonl", {"train": TASKS, "none": []})
    assert len(rows.tasks("train", 4, 1)) == 4
    assert rows.tasks("train", 10, 1) != rows.tasks("train", 10, 2)
    for split in ("none", "other"):
        with pytest.raises(DomainError, match=f"a.jsonl: split '{split}' has no rows: add some"):
            rows.tasks(split, 1, 1)


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('\ufeff{"a": "\u2028"}\n\n[1]\n', encoding="utf-8")
    assert list(read_lines(path, "row")) == [(1, {"a": "\u2028"}), (3, [1])]
    path.write_text("1\nnone\n")
    with pytest.raises(DomainError, match=r"rows.jsonl, row 2: not JSON .*; fix it"):
        list(read_lines(path, "row"))
    path.write_bytes(b"\xff")
    with pytest.raises(DomainError, match="is not UTF-8"):
        list(read_lines(path, "row"))
    with pytest.raises(MissingData, match="cannot be read"):
        list(read_lines(tmp_path, "row"))
