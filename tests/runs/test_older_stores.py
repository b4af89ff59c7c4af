"""A store that the version before wrote: it is read as if it were of this one, and not written."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from helpers.command import call
from helpers.report_runs import make_run
from rlanything.runs.export import export_run
from rlanything.runs.open import open_run
from rlanything.runs.report.facts import Reader
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.records import recorded_trajectories
from rlanything.runs.store.schema import SCHEMA_VERSION, TABLES
from rlanything.runs.store.store import Store

BEFORE = {
    "steps": """CREATE TABLE steps (
  trajectory INTEGER NOT NULL REFERENCES trajectories ON DELETE CASCADE, step INTEGER NOT NULL,
  action TEXT, valid INTEGER NOT NULL, label INTEGER, advantage REAL, image TEXT,
  next_image TEXT, PRIMARY KEY (trajectory, step)) WITHOUT ROWID""",
    "judgements": """CREATE TABLE judgements (
  trajectory INTEGER NOT NULL, step INTEGER NOT NULL, judgement INTEGER NOT NULL,
  score INTEGER NOT NULL, advantage REAL, PRIMARY KEY (trajectory, step, judgement),
  FOREIGN KEY (trajectory, step) REFERENCES steps ON DELETE CASCADE) WITHOUT ROWID""",
    "samples": """CREATE VIEW samples (iteration, role, source, advantage) AS
  SELECT iteration, 'policy', id || '/' || step, advantage
    FROM steps JOIN trajectories ON number = trajectory WHERE advantage IS NOT NULL
  UNION ALL
  SELECT iteration, 'judge', id || '/' || step || '/' || judgement, advantage
    FROM judgements JOIN trajectories ON number = trajectory WHERE advantage IS NOT NULL""",
    "judge_eval_counts": """CREATE TABLE judge_eval_counts (
  iteration INTEGER NOT NULL, item TEXT NOT NULL, measure TEXT NOT NULL,
  hits INTEGER NOT NULL, total INTEGER NOT NULL,
  PRIMARY KEY (iteration, item, measure)) WITHOUT ROWID""",
}
"""Tables without a role, as the version before made them."""


def rewrite_as_before(path: Path) -> None:
    """Makes a store what the version before would have written of the same run."""
    older = path.with_name("older.sqlite")
    with closing(sqlite3.connect(older)) as db:
        for statement in re.finditer(r"CREATE \w+ (\w+)[^;]*", TABLES):
            db.execute(BEFORE.get(statement[1], statement[0]))
        db.execute("ATTACH ? AS now", (str(path),))
        tables = db.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'").fetchall()
        for (table,) in tables:
            names = [row[1] for row in db.execute(f"PRAGMA main.table_info({table})")]
            columns = ", ".join(names)
            db.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM now.{table}")
        db.execute(f"PRAGMA main.user_version={SCHEMA_VERSION - 1}")
        db.commit()
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    older.rename(path)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two iterations with a store of the version before."""
    run = make_run(tmp_path_factory.mktemp("older") / "run", 2)
    (run / "recipe.yaml").write_text("name: run\ndomain: {name: made up}\n")
    rewrite_as_before(run / "run.sqlite")
    return run


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with a store of this version."""
    run = make_run(tmp_path_factory.mktemp("newer") / "run", 2)
    (run / "recipe.yaml").write_text("name: run\ndomain: {name: made up}\n")
    return run


def test_an_older_store_reads_as_one_of_this_version(older: Path, newer: Path) -> None:
    with closing(Store(older / "run.sqlite")) as one, closing(Store(newer / "run.sqlite")) as two:
        assert one.check() == []
        assert one.dump() == two.dump()
        samples = "SELECT * FROM samples ORDER BY 1, 2, 3"
        assert one.query(samples) == two.query(samples) != []
        assert one.judge_eval_counts(2, "judge") == two.judge_eval_counts(2, "judge") != {}
        assert recorded_trajectories(one, 1) == recorded_trajectories(two, 1)


def test_an_older_run_is_opened_exported_and_reported(
    older: Path, newer: Path, tmp_path: Path
) -> None:
    run = open_run(older)
    assert run.trajectories(1) == open_run(newer).trajectories(1)
    judgements = [each for step in run.trajectories(1)[0].steps for each in step.judgements]
    assert {each.by for each in judgements} == {"judge"}
    assert export_run(run, tmp_path / "out", "jsonl")["trajectories"] == run.trajectory_count()
    with closing(Store(older / "run.sqlite")) as store, closing(Store(newer / "run.sqlite")) as new:
        facts, expected = Reader(store, older).facts(), Reader(new, newer).facts()
    assert facts.judges == expected.judges
    assert facts.policy == expected.policy


def test_an_older_run_takes_nothing_more(older: Path) -> None:
    with closing(Store(older / "run.sqlite")) as store:
        before = store.dump()
        with pytest.raises(StoreError, match="which this version reads but does not write"):
            store.forget_texts(2)
        assert store.dump() == before


def test_an_older_run_is_not_resumed(
    older: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "resume", str(older)) == 2
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1
    assert said.endswith("version that wrote it, or train again in another directory")
    assert sorted(path.name for path in older.iterdir()) == ["recipe.yaml", "run.sqlite"]
