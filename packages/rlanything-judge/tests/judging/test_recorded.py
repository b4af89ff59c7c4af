"""Recorded rollouts that no judge can read are refused in one line."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from helpers.report_runs import make_run
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store
from rlanything_judge.recorded import recorded_trajectories


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE steps SET role = 'rival' WHERE step = 1", "several roles act"),
        ("UPDATE tasks SET data = '{'", "restore a copy"),
    ],
)
def test_rollouts_that_no_judge_can_read_are_refused(
    tmp_path: Path, statement: str, reason: str
) -> None:
    path = make_run(tmp_path / "run", 1) / "run.sqlite"
    with closing(Store(path)) as store:
        assert len(recorded_trajectories(store, 1)) > 1
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)
    with closing(Store(path)) as store, pytest.raises(StoreError, match=reason) as caught:
        recorded_trajectories(store, 1)
    assert "\n" not in str(caught.value)
