"""The commands that make, continue and read a run, each called once as a user would."""

from __future__ import annotations

import json
import shutil
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
