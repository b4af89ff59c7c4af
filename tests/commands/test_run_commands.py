"""The commands that make, continue and read a run, each called once as a user would."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from helpers.command import call
from helpers.guess import train_once

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_once(
        tmp_path_factory.mktemp("commands") / "run", "loop.max_steps=3", "environment.workers=0"
    )


def test_resume_goes_on_to_more_iterations(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch, "resume", str(run), "loop.iterations=2") == 0
    assert (run / "checkpoints" / "iter-00002").is_dir()
    capsys.readouterr()
    assert call(monkeypatch, "resume", str(run.parent)) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_tasks_shows_every_slot(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch, "tasks", str(run), "--json") == 0
    slots = json.loads(capsys.readouterr().out)["slots"]
    assert len(slots) == 16
    assert call(monkeypatch, "tasks", str(run)) == 0
    assert "16 slots" in capsys.readouterr().out


def test_report_writes_one_page(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    page = tmp_path / "page.html"
    assert call(monkeypatch, "report", str(run), "--out", str(page)) == 0
    assert capsys.readouterr().out.split() == [str(page)]
    assert "<html" in page.read_text()


def test_a_damaged_checkpoint_is_not_evaluated(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    newest = shutil.copytree(copy / "checkpoints" / "iter-00001", copy / "checkpoints/iter-00009")
    (newest / "policy" / "model.safetensors").write_bytes(b"not what was written")
    command = ["eval", str(copy), "--episodes=1"]
    assert call(monkeypatch, *command, "--json") == 0
    printed = capsys.readouterr()
    json.loads(printed.out)
    assert "damaged: iter-00009" in printed.err
    for checkpoint in (copy / "checkpoints").iterdir():
        (checkpoint / "pool.json").write_text("{}")
    assert call(monkeypatch, *command) == 2
    assert "has no intact checkpoint" in capsys.readouterr().err


EASIER = "Guess a number between 1 and 8 in 6 tries."


@pytest.fixture
def rewritten(run: Path, tmp_path: Path) -> Path:
    """The run, as if it had accepted a rewritten task, and another that could not be played."""
    copy = shutil.copytree(run, tmp_path / "rewritten")
    with closing(sqlite3.connect(copy / "run.sqlite")) as store, store:
        store.execute("DELETE FROM slot_events")
        [(slot,)] = store.execute("SELECT slot FROM slots ORDER BY slot LIMIT 1")
        for number, task in enumerate(("easier@1", "easier@2"), 100):
            store.execute(
                "INSERT INTO tasks VALUES (?, ?, ?, '', ?)",
                (task, slot, EASIER, '{"secret": 5, "tries": 6}'),
            )
            store.execute(
                "INSERT INTO slot_events VALUES (?, ?, 'accepted', 1, ?, 'easier', 0.1, 0.5, '')",
                (slot, number, task),
            )
        store.execute("INSERT INTO quarantine VALUES ('easier@2', 1, 'broken')")
    return copy


def test_the_accepted_tasks_of_a_run_are_tried_several_times_by_another_player(
    rewritten: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    asked = ("--accepted-of", str(rewritten), "--rollouts", "5", "--json", "--workers", "0")
    assert call(monkeypatch, "eval", "expert", *asked) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["episodes"], result["success"]) == (5, 1.0)
    assert result["solved_once"]["estimate"] == 1.0
    assert result["split"] == f"{rewritten}, accepted"
    assert call(monkeypatch, "eval", str(rewritten), *asked) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["expert", "--split", "ood"], "--split: --accepted-of says which tasks are played"),
        (["two-worlds"], "its tasks are of guess:Guess, and two-worlds plays several"),
    ],
)
def test_what_does_not_go_with_accepted_tasks_is_refused(
    rewritten: Path,
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    assert call(monkeypatch, "eval", *words, "--accepted-of", str(rewritten)) == 2
    assert said in capsys.readouterr().err.replace("\n", " ")


def test_a_run_without_accepted_tasks_and_a_missing_one_are_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    fresh = train_once(run.parent / "fresh", "loop.max_steps=3", "environment.workers=0")
    assert call(monkeypatch, "eval", "expert", "--accepted-of", str(fresh)) == 2
    assert "it has accepted no rewritten task so far" in capsys.readouterr().err.replace("\n", " ")
    assert call(monkeypatch, "eval", "expert", "--accepted-of", "nowhere") == 2
    assert "there is no such run" in capsys.readouterr().err
