"""A run directory from a stranger: nothing outside it is read, written or deleted, and what no run
writes is refused in one line."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import sqlite3
import time
import zlib
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from helpers.command import call
from helpers.guess import FEW, GUESS, write_recipe
from helpers.neighbours import JUDGE_EVAL
from helpers.report_runs import make_run
from rlanything.commands import doctor
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.runs.checkpoint import forget, problems, prune, saved_iterations
from rlanything.runs.directory import check_run, create_run, day_begun, find_holder, now, run_lock
from rlanything.runs.open import open_run
from rlanything.runs.paths import NAMES, RunDirectoryError
from rlanything.runs.recovery import last_position, recover
from rlanything.runs.report.writing import write_report
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

SECRET = "the private key of whoever reads this"
IMAGE = f"{'0a' * 16}.png"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the reader's, outside the run."""
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


def stranger(tmp_path: Path, image: str | None = None) -> Path:
    """A run directory as it might be sent to somebody, with checkpoints of three iterations."""
    run = make_run(tmp_path / "run", 2, tasks=1, episodes=2, image=image)
    write_recipe(run / "recipe.yaml")
    for iteration in (1, 2, 3):
        checkpoint(run / "checkpoints", iteration)
    return run


def checkpoint(folder: Path, iteration: int) -> Path:
    place = folder / f"iter-{iteration:05d}"
    (place / "policy").mkdir(parents=True)
    (place / "policy" / "weights").write_bytes(bytes([iteration]))
    (place / "pool.json").write_text("{}")
    seal(place, {})
    return place


def seal(place: Path, more: dict[str, str]) -> None:
    """Writes the manifest of what lies in a checkpoint, and of more."""
    digests = {
        path.relative_to(place).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in (place / "policy" / "weights", place / "pool.json")
    }
    (place / "manifest.json").write_text(json.dumps({"iteration": 1, "sha256": digests | more}))


def one_line(caught: pytest.ExceptionInfo[ValueError], *words: str) -> None:
    message = str(caught.value)
    assert "\n" not in message
    assert not [word for word in words if word not in message], message


# --- images


@pytest.mark.parametrize("name", ["{secret}", "../../secret", "secret.png", "..", "", "a/" + IMAGE])
def test_a_report_holds_no_file_but_the_screenshots_of_the_run(
    tmp_path: Path, secret: Path, name: str
) -> None:
    run = stranger(tmp_path, image=name.format(secret=secret))
    (run / "images" / "a").mkdir(parents=True)
    for place in ("secret.png", f"a/{IMAGE}"):
        (run / "images" / place).write_text(SECRET)
    write_report([run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert base64.b64encode(SECRET.encode()).decode() not in page
    assert 'data-image="' not in page.replace('data-image="$', "")


def test_a_screenshot_is_in_the_report_by_the_name_that_it_was_given(tmp_path: Path) -> None:
    run = stranger(tmp_path, image=IMAGE)
    (run / "images").mkdir()
    (run / "images" / IMAGE).write_bytes(b"picture")
    write_report([run], tmp_path / "report.html")
    assert f'data-image="{IMAGE}"' in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_report_reads_no_image_through_a_link(tmp_path: Path, secret: Path, kind: str) -> None:
    run = stranger(tmp_path, image=IMAGE)
    if kind == "file":
        (run / "images").mkdir()
        (run / "images" / IMAGE).symlink_to(secret)
    else:
        (tmp_path / IMAGE).write_text(SECRET)
        (run / "images").symlink_to(tmp_path)
    with pytest.raises(RunDirectoryError) as caught:
        write_report([run], tmp_path / "report.html")
    one_line(caught, "images", "is a link", "put")


# --- links


def linked(run: Path, name: str) -> Path:
    """Moves something of a run away and puts a link in its place; where it is now."""
    elsewhere = run.with_name("elsewhere")
    if (run / name).exists():
        (run / name).rename(elsewhere)
    else:
        elsewhere.write_text("mine")
    (run / name).symlink_to(elsewhere)
    return elsewhere


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in files}


@pytest.mark.parametrize("name", NAMES)
def test_a_run_directory_with_a_link_in_it_is_refused(tmp_path: Path, name: str) -> None:
    run = stranger(tmp_path)
    elsewhere = linked(run, name)
    before = contents(elsewhere)
    store = lambda: Store(run / "run.sqlite")  # noqa: E731
    for use in (lambda: Trainer.resume(run), lambda: open_run(run), store):
        with pytest.raises(RunDirectoryError) as caught:
            use()
        one_line(caught, str(run / name), "is a link", "put")
    (finding,) = doctor.check_run(run)
    assert finding.status == "error"
    assert f"{name} is a link" in finding.text
    assert contents(elsewhere) == before


@pytest.mark.parametrize(
    "command",
    [
        *("tasks", "report", "resume", "eval", "export --format jsonl --out out"),
        JUDGE_EVAL,
    ],
)
def test_every_command_refuses_a_run_directory_with_a_link_in_it(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = stranger(tmp_path)
    before = contents(linked(run, "checkpoints"))
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, *command.split(), str(run)) == 2
    assert "is a link" in " ".join(capsys.readouterr().err.split())
    assert contents(tmp_path / "elsewhere") == before


def test_the_run_directory_itself_may_lie_on_another_disk(tmp_path: Path) -> None:
    run = stranger(tmp_path)
    (tmp_path / "runs").symlink_to(run)
    check_run(tmp_path / "runs")
    assert open_run(tmp_path / "runs").metrics()
    write_report([tmp_path / "runs"], tmp_path / "runs" / "report.html")
    assert (run / "report.html").is_file()


@pytest.mark.parametrize("name", ["lock", "images"])
def test_what_is_neither_file_nor_folder_is_refused(tmp_path: Path, name: str) -> None:
    run = stranger(tmp_path)
    os.mkfifo(run / name)
    with pytest.raises(RunDirectoryError) as caught:
        check_run(run)
    one_line(caught, name, "neither a file nor a folder")


def test_a_report_is_not_written_through_a_link(tmp_path: Path, secret: Path) -> None:
    run = stranger(tmp_path)
    for name in (".report.html.partial", f".report.html.{os.getpid()}.partial"):
        (run / name).symlink_to(secret)
    (run / "report.html").symlink_to(secret)
    write_report([run], run / "report.html")
    assert secret.read_text() == SECRET
    assert not (run / "report.html").is_symlink()
    assert "<html" in (run / "report.html").read_text()


def test_the_lock_writes_and_empties_no_other_file(tmp_path: Path, secret: Path) -> None:
    run = stranger(tmp_path)
    (run / "lock").symlink_to(secret)
    with pytest.raises(RunDirectoryError) as caught, run_lock(run):
        pass
    one_line(caught, str(run / "lock"), "is a link")
    with pytest.raises(RunDirectoryError, match="is a link"):
        find_holder(run)
    assert secret.read_text() == SECRET


# --- checkpoints


def test_checkpoints_of_another_run_are_not_deleted_through_a_link(tmp_path: Path) -> None:
    run = stranger(tmp_path)
    (tmp_path / "victim").mkdir()
    (run / "checkpoints").rename(tmp_path / "victim" / "checkpoints")
    (run / "checkpoints").symlink_to("../victim/checkpoints")
    with closing(sqlite3.connect(run / "run.sqlite")) as db:
        db.execute("DELETE FROM iterations")
        db.commit()
    with pytest.raises(RunDirectoryError, match="is a link"):
        Trainer.resume(run).train()
    victim = tmp_path / "victim" / "checkpoints"
    assert saved_iterations(victim) == [1, 2, 3]


def test_a_linked_checkpoint_is_damaged_and_is_deleted_as_a_link(tmp_path: Path) -> None:
    run = stranger(tmp_path)
    folder = run / "checkpoints"
    (folder / "iter-00003").rename(tmp_path / "elsewhere")
    (folder / "iter-00003").symlink_to(tmp_path / "elsewhere")
    (folder / ".iter-00004.partial").symlink_to(tmp_path / "elsewhere")
    assert "iter-00003 is a link" in problems(folder / "iter-00003")[0]
    assert last_position(run, print).iteration == 2
    forget(folder, [3])
    assert sorted(path.name for path in folder.iterdir()) == ["iter-00001", "iter-00002"]
    assert (tmp_path / "elsewhere" / "pool.json").is_file()


@pytest.mark.parametrize(
    "name", ["iter-00002.bak", "iter-00002_9", "iter-2", "iter-00002 ", "iter-"]
)
def test_a_copy_beside_the_checkpoints_is_none_of_them(tmp_path: Path, name: str) -> None:
    run = stranger(tmp_path)
    folder = run / "checkpoints"
    shutil.copytree(folder / "iter-00002", folder / name)
    assert saved_iterations(folder) == [1, 2, 3]
    said: list[str] = []
    with closing(Store(run / "run.sqlite")) as store:
        assert recover(run, store, said.append).iteration == 2
    prune(folder, 1, 0)
    assert saved_iterations(folder) == [2]
    assert (folder / name / "pool.json").is_file()
    assert not said


def test_a_checkpoint_that_is_a_file_is_damaged(tmp_path: Path) -> None:
    run = stranger(tmp_path)
    (run / "checkpoints" / "iter-00009").write_text("not a folder")
    assert last_position(run, print).iteration == 3
    assert problems(run / "checkpoints" / "iter-00009")
    forget(run / "checkpoints", [9])
    assert saved_iterations(run / "checkpoints") == [1, 2, 3]


@pytest.mark.parametrize("name", ["/dev/zero", "../../recipe.yaml", "policy", "a\0b", "{secret}"])
def test_a_manifest_names_files_of_its_checkpoint_only(
    tmp_path: Path, secret: Path, name: str
) -> None:
    place = checkpoint(tmp_path, 1)
    named = name.format(secret=secret)
    seal(place, {named: sha256(SECRET.encode()).hexdigest()})
    assert [line for line in problems(place) if "is missing" in line]


@pytest.mark.parametrize("kind", ["link", "linked folder", "pipe", "manifest", "huge manifest"])
def test_a_checkpoint_holds_plain_files_only(tmp_path: Path, kind: str) -> None:
    place = checkpoint(tmp_path, 1)
    if kind == "link":
        (place / "policy" / "more").symlink_to("/dev/zero")
    elif kind == "linked folder":
        shutil.move(place / "policy", tmp_path / "policy")
        (place / "policy").symlink_to(tmp_path / "policy")
    elif kind == "pipe":
        os.mkfifo(place / "policy" / "more")
    elif kind == "manifest":
        (place / "manifest.json").unlink()
        os.mkfifo(place / "manifest.json")
    else:
        os.truncate(place / "manifest.json", 1 << 40)
    (line,) = problems(place)
    assert line.startswith("iter-00001")


# --- the store


def doctored(run: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(run / "run.sqlite")) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return run


ENDLESS = "{} WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, i FROM n"


@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE slots RENAME TO mine", f"CREATE VIEW slots AS {ENDLESS.format('')}"),
        (f"CREATE TRIGGER t DELETE ON metrics BEGIN {ENDLESS.format('INSERT INTO run')}; END",),
        ("DROP TABLE quarantine",),
        ("DROP VIEW samples",),
        ("ALTER TABLE run ADD COLUMN x AS (hex(value))",),
        ("CREATE INDEX i ON metrics (abs(value))",),
    ],
)
def test_a_store_with_other_tables_is_refused(tmp_path: Path, statements: tuple[str, ...]) -> None:
    run = doctored(stranger(tmp_path), *statements)
    with pytest.raises(StoreError) as caught:
        Store(run / "run.sqlite")
    one_line(caught, str(run / "run.sqlite"), "restore a copy")


def test_a_store_that_was_analyzed_is_one(tmp_path: Path) -> None:
    Store(doctored(stranger(tmp_path), "ANALYZE") / "run.sqlite").close()


def test_a_journal_that_no_run_writes_is_refused(tmp_path: Path) -> None:
    # A hot one may name any file as its master, which SQLite would delete.
    run = stranger(tmp_path)
    (run / "run.sqlite-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7")
    with pytest.raises(StoreError) as caught:
        Store(run / "run.sqlite")
    one_line(caught, "run.sqlite-journal", "delete it")


@pytest.mark.parametrize(
    "texts",
    [
        zlib.compress(b"[" + b" " * (65 << 20), 1),
        b"not compressed",
        zlib.compress(b'[["cut')[:-3],
        zlib.compress(b"[" * 100_000),
        zlib.compress(b'{"a": 1}'),
        zlib.compress(b"[[], 1]"),
    ],
    ids=["bomb", "raw", "cut", "deep", "mapping", "short"],
)
def test_texts_that_no_run_wrote_are_one_line(tmp_path: Path, texts: bytes) -> None:
    run = stranger(tmp_path)
    with closing(sqlite3.connect(run / "run.sqlite")) as db:
        db.execute("UPDATE transcripts SET texts = ?", (texts,))
        db.commit()
    uses: list[Callable[[], object]] = [lambda: write_report([run], tmp_path / "report.html")]
    uses.append(lambda: open_run(run).trajectories())
    for use in uses:
        with pytest.raises(StoreError) as caught:
            use()
        one_line(caught, str(run / "run.sqlite"), "restore a copy")


def episodes_judged(run: Path) -> object:
    with closing(Store(run / "run.sqlite")) as store:
        return store.judge_eval_episodes(), store.judge_eval_labels()


@pytest.mark.parametrize(
    ("statement", "use"),
    [
        ("UPDATE steps SET step = 900 + step", lambda run: open_run(run).trajectories()),
        ("UPDATE judgements SET step = 900 + step", lambda run: open_run(run).trajectories()),
        ("DELETE FROM run WHERE key = 'recipe'", lambda run: open_run(run).recipe),
        ("UPDATE run SET value = '[1' WHERE key = 'recipe'", lambda run: open_run(run).recipe),
        ("INSERT INTO judge_eval_episodes VALUES (0, '{}', '[1]')", episodes_judged),
        ("INSERT INTO judge_eval_episodes VALUES (0, '[', NULL)", episodes_judged),
        ("INSERT OR REPLACE INTO run VALUES ('begun', 'once')", day_begun),
        ("DELETE FROM run WHERE key = 'begun'", day_begun),
        (
            "INSERT OR REPLACE INTO run VALUES ('recipe', '[1]')",
            lambda run: write_report([run], run / "report.html"),
        ),
    ],
)
def test_rows_that_no_run_writes_are_one_line(
    tmp_path: Path, statement: str, use: Callable[[Path], object]
) -> None:
    run = doctored(stranger(tmp_path), statement)
    with pytest.raises(StoreError) as caught:
        use(run)
    one_line(caught, str(run / "run.sqlite"), "restore a copy")


# --- making it, and losing it


def test_of_two_runs_with_one_directory_the_second_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    recipe = load_recipe(GUESS, [*FEW, f"run_dir={run}"])
    create = Store.create

    def with_another_in_between(path: Path) -> Store:
        monkeypatch.setattr(Store, "create", create)
        create_run(run, recipe, now())
        (run / "checkpoints").mkdir()
        return create(path)

    monkeypatch.setattr(Store, "create", with_another_in_between)
    with pytest.raises(RecipeError) as caught:
        create_run(run, recipe, now())
    one_line(caught, str(run), "exists already", "run_dir=")
    assert (run / "checkpoints").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    Store(run / "run.sqlite").close()


def test_a_look_at_the_lock_refuses_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with run_lock(run):
        holder = find_holder(run)
        assert holder is not None
        assert holder.at_work
    assert find_holder(run) is None
    with open(run / "lock") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)  # as `find_holder` does for an instant
        monkeypatch.setattr(time, "sleep", lambda seconds: fcntl.flock(looking, fcntl.LOCK_UN))
        with run_lock(run):
            assert (run / "lock").read_text() == f"{os.getpid()}\n"


def test_a_place_where_no_run_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = tmp_path / "file" / "run"
    with pytest.raises(RecipeError) as caught:
        create_run(run, load_recipe(GUESS, [*FEW, f"run_dir={run}"]), now())
    one_line(caught, str(run), "run_dir=")
