"""The command line: what it prints, and how it refuses what it cannot use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.command import call, refused
from helpers.guess import FEW
from rlanything import __version__

EXPERT = ("eval", "expert", "--domain", "guess:Guess")
TRAIN = ("train", "guess", *FEW)


def test_version_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--version") == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize("command", [[], ["train"], ["eval"], ["tasks"]])
def test_help_names_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert call(monkeypatch, *command, "--help") == 0
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("policy.learning_rat=1", "policy.learning_rat: unknown key"),
        ("policy.learning_rate=fast", "policy.learning_rate"),
        ("loop.tasks_per_iteration=100", "exceeds tasks"),
        ("domain.name=chess", "unknown domain 'chess'"),
        ("domain.options={rooms: 3}", "domain.options.rooms: unknown key; known here: none"),
        (
            "domain={name: 'helpers.at_least:AtLeast', options: {data: /nowhere}}",
            "/nowhere",
        ),
        ("evaluation.splits=[tomorrow]", "tomorrow"),
        ("policy.model=/nowhere", "cannot load model '/nowhere'"),
        ("nonsense", "section.key=value"),
    ],
)
def test_what_a_recipe_cannot_have_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    override: str,
    said: str,
) -> None:
    folder = tmp_path / "run"
    assert said in refused(monkeypatch, capsys, *TRAIN, f"run_dir={folder}", override)
    assert not folder.exists()


def test_a_run_directory_that_exists_is_not_touched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("mine")
    assert "exists already" in refused(monkeypatch, capsys, *TRAIN, f"run_dir={tmp_path}")
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_tasks_of_no_run_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "not a run directory" in refused(monkeypatch, capsys, "tasks", str(tmp_path))


def test_eval_reports_success_with_its_interval_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = call(monkeypatch, *EXPERT, "--episodes", "6", "--workers", "0", "--json")
    assert code == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] == 6
    assert result["success"] == 1.0
    assert 0.5 < result["low"] < result["high"] == 1.0
    assert result["seconds"] > 0


def test_eval_of_a_bare_model_takes_what_a_recipe_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ("--episodes", "4", "--workers", "0", "--max-steps", "3", "--json")
    assert call(monkeypatch, "eval", "nano-guess", *size, "policy.dtype=bfloat16", "threads=1") == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 4
    said = refused(monkeypatch, capsys, "eval", "nano-guess", *size, "policy.dtype=float8")
    assert "override policy.dtype: input should be 'float32' or 'bfloat16'" in said


def test_eval_of_an_unknown_split_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no split 'soon'" in refused(monkeypatch, capsys, *EXPERT, "--split", "soon")


def test_a_typo_is_told_before_anything_heavy_is_imported() -> None:
    program = (
        "import sys\nfrom rlanything.cli import main\n"
        "sys.argv = ['rlanything', 'train', 'guess', 'loop.nope=1']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 2\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "override loop.nope" in done.stderr
