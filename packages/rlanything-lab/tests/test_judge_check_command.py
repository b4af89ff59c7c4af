"""`rlanything judge-check` on a run, a run that is damaged, and what is no run."""

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
    return train_once(tmp_path_factory.mktemp("commands") / "run")


def test_judge_check_says_what_the_judge_noticed(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch, "judge-check", str(run), "--episodes", "1", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] == 1
    assert "unchanged (control)" in result["measures"]
    assert call(monkeypatch, "judge-check", str(run.parent)) == 2
    assert "is not a run directory" in capsys.readouterr().err


def test_it_reads_no_damaged_checkpoint(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    newest = shutil.copytree(copy / "checkpoints" / "iter-00001", copy / "checkpoints/iter-00009")
    (newest / "judge" / "model.safetensors").write_bytes(b"not what was written")
    capsys.readouterr()
    assert call(monkeypatch, "judge-check", str(copy), "--episodes=1", "--json") == 0
    printed = capsys.readouterr()
    json.loads(printed.out)
    assert "damaged: iter-00009" in printed.err


def test_a_run_with_a_hostile_name_is_shown_as_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch, "judge-check", str(tmp_path / "a[red]b\x1b")) == 2
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
