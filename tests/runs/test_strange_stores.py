"""A store of somebody else's: one line for values that no run writes, and what one may only read is
read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from helpers.command import call
from helpers.report_runs import make_run
from rlanything.commands.doctor import _store
from rlanything.runs.directory import run_lock
from rlanything.runs.open import open_run
from rlanything.runs.paths import RunDirectoryError
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.schema import strange_values
from rlanything.runs.store.store import Store

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = make_run(tmp_path_factory.mktemp("made") / "run", 2)
    (run / "recipe.yaml").write_text("name: made\n")
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def put(run: Path, table: str, column: str, value: str) -> bool:
    """Puts a value into a row, if there is one."""
    with closing(sqlite3.connect(run / "run.sqlite")) as db, db:
        db.execute("PRAGMA foreign_keys=OFF")
        db.execute(
            f"UPDATE OR IGNORE {table} SET {column} = {value}"
            f" WHERE {column} IS (SELECT {column} FROM {table} LIMIT 1)"
        )
        return db.total_changes > 0


COLUMNS = [(table, column) for table, columns in strange_values().items() for column in columns]


def test_no_column_may_hold_another_kind_of_value(run: Path) -> None:
    with closing(Store(run / "run.sqlite")) as store:
        assert store.check() == []
    whole, refused = (run / "run.sqlite").read_bytes(), 0
    for table, column in COLUMNS:
        for value in ("x'01ff'", "'abc'", "cast(x'ff' AS TEXT)"):
            (run / "run.sqlite").write_bytes(whole)
            try:
                if not put(run, table, column, value):
                    continue
            except sqlite3.IntegrityError:  # SQLite itself refuses it there
                continue
            with closing(Store(run / "run.sqlite")) as store:
                found = store.check()
            own = {"TEXT": "'abc'", "BLOB": "x'01ff'"}.get(store_kind(run, table, column))
            kept = value == own and not found  # what such a column may hold
            assert kept or (found and all(map(str.isprintable, found))), (table, column, value)
            refused += not kept
    assert refused > 100


def store_kind(run: Path, table: str, column: str) -> str:
    with closing(sqlite3.connect(run / "run.sqlite")) as db:
        kinds = {name: kind for _, name, kind, *_ in db.execute(f"PRAGMA table_info({table})")}
    return kinds[column]


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("tasks", "instruction", "cast(x'ff' AS TEXT)"),
        ("metrics", "name", "cast(x'ff' AS TEXT)"),
        ("metrics", "name", "x'01'"),
        ("slots", "accuracy", "'abc'"),
        ("groups", "accuracy", "9e999"),
        ("slot_events", "parent_accuracy", "1e308"),
        ("slot_events", "kind", "'lost'"),
        ("trajectories", "outcome", "'won'"),
        ("trajectories", "outcome", "7"),
        ("slot_events", "iteration", "'first'"),
        ("proposals", "critics", "7"),
        ("evaluations", "outcome", "7"),
    ],
)
def test_commands_say_one_line_of_it_and_doctor_tells(
    table: str,
    column: str,
    value: str,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    assert put(run, table, column, value)
    for words in ("report", "tasks", f"export --out {run.parent / 'out'}"):
        command, *options = words.split()
        code = call(monkeypatch, command, str(run), *options)
        if (command, table) == ("tasks", "metrics") and not code:  # which it does not read
            capsys.readouterr()
            continue
        assert code == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "run.sqlite: " in line
        assert "restore a copy" in line
    [finding] = _store(run)
    assert finding.status == "error"
    assert "run writes" in finding.text


def test_a_text_that_no_run_writes_is_not_read(run: Path) -> None:
    assert put(run, "tasks", "instruction", f"printf('%.*c', {65 << 20}, 'x')")
    said = pytest.raises(StoreError, match="too big; no run writes so long a text")
    with closing(Store(run / "run.sqlite")) as store, said:
        store.query("SELECT instruction FROM tasks")


@contextmanager
def read_only(run: Path) -> Iterator[Path]:
    """The run where this process may write nothing of it."""
    place = Path(tempfile.mkdtemp())
    shutil.copytree(run, place / "run")
    root = os.geteuid() == 0  # who may write anything: be somebody else
    try:
        place.chmod(0o755)
        for path in (place / "run", *(place / "run").rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        if root:
            os.seteuid(65534)
        yield place / "run"
    finally:
        if root:
            os.seteuid(0)
        for path in (place / "run", place):
            path.chmod(0o755)
        shutil.rmtree(place)


def test_a_run_that_one_may_only_read_is_read(made: Path) -> None:
    expected = open_run(made)
    metrics, tasks, count = expected.metrics(), expected.tasks(), expected.trajectory_count()
    names = {path.name for path in made.iterdir()}
    with read_only(made) as run:
        recorded = open_run(run)
        assert recorded.metrics() == metrics
        assert recorded.tasks() == tasks
        assert len(recorded.trajectories()) == count
        said = pytest.raises(StoreError, match="readonly database; allow this user to write")
        with closing(Store(run / "run.sqlite")) as store, said:
            store.describe({"finished": None})
        assert {path.name for path in run.iterdir()} == names


def test_what_is_not_in_the_file_yet_is_not_left_out_unsaid(made: Path, tmp_path: Path) -> None:
    """Changes wait beside the file, and only who may write there can read them."""
    run = Path(shutil.copytree(made, tmp_path / "run"))
    (run / "run.sqlite-wal").write_bytes(b"changes")
    said = pytest.raises(StoreError, match=r"run\.sqlite: .*; allow this user to write")
    with read_only(run) as kept, said:
        open_run(kept).metrics()


@pytest.mark.parametrize("name", ["lock", "run.sqlite"])
def test_a_second_name_of_a_file_is_not_written(name: str, run: Path, tmp_path: Path) -> None:
    own = tmp_path / "precious"
    own.write_text("mine")
    (run / name).unlink(missing_ok=True)
    os.link(own, run / name)
    with pytest.raises(RunDirectoryError, match="has another name elsewhere"), run_lock(run):
        pass
    assert own.read_text() == "mine"
