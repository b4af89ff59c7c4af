"""What the commands print of text and names that they did not choose."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from helpers.command import call, printed
from helpers.guess import FEW
from helpers.neighbours import needs_plugin
from helpers.report_runs import make_run
from rlanything import plugins
from rlanything.terminal import visible

CRITIC = "[/INST] uses a[i] and b[j] wrongly \x1b]0;title\x07\x1b[2J \u202e"
SMALL = ["loop.iterations=1", "loop.tasks_per_iteration=1", "loop.rollouts_per_task=2"]
SMALL += ["loop.max_steps=2", "environment.workers=0", "evaluation.episodes=0"]

Captured = pytest.CaptureFixture[str]


@pytest.fixture(params=["b[red]c", "d[/q]", "e\x1b]0;t\x07\n"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run of which all was said by somebody hostile, under a name to match."""
    directory = tmp_path / request.param
    directory.parent.mkdir(exist_ok=True)
    return make_run(directory, 2, say=lambda text: f"{text} {CRITIC}")


def test_tasks_shows_what_models_wrote(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert call(monkeypatch, "tasks", str(run)) == 0
    assert f"critic: The agent never opened the drawer. {visible(CRITIC)}" in printed(capsys)
    assert call(monkeypatch, "tasks", str(run), "--json") == 0
    slots = json.loads(capsys.readouterr().out)["slots"]
    assert any(CRITIC in critic for s in slots for e in s["history"] for critic in e["critics"])


def test_commands_that_read_a_run_print_its_name(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    name = visible(run.name).replace("\n", "\\n")
    assert call(monkeypatch, "report", str(run)) == 0
    assert name in printed(capsys)
    assert call(monkeypatch, "doctor", str(run)) == 1  # it has no recipe
    assert name in printed(capsys)
    for command in ("resume", "eval", "judge-eval"):
        assert call(monkeypatch, command, str(run)) == 2
        error = printed(capsys)
        assert error.startswith("error: ")
        assert error.count("\n") == 1


def test_a_run_is_trained_continued_and_measured_under_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    first, second = tmp_path / "b[red]c", tmp_path / "d[/q]"
    monkeypatch.setenv("COLUMNS", "400")
    assert call(monkeypatch, "train", "guess", *FEW, f"run_dir={first}", *SMALL) == 0
    assert f"run: {first}" in printed(capsys)
    shutil.copytree(first, second)
    assert call(monkeypatch, "resume", str(second)) == 0
    assert f"run: {second}" in printed(capsys)
    size = ["--episodes", "1", "--workers", "0", "--max-steps", "1"]
    assert call(monkeypatch, "eval", str(second), *size) == 0
    assert str(second) in "".join(printed(capsys).split())  # a title is as wide as its table
    assert call(monkeypatch, "export", str(second), "--out", str(first / "[/x]")) == 0
    assert f"{first / '[/x]'}: " in printed(capsys)


def test_a_store_with_hostile_numbers_and_names_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    run = make_run(tmp_path / "run", 1)
    with sqlite3.connect(run / "run.sqlite") as database:
        database.execute("UPDATE slot_events SET reason = ?, direction = ?", (CRITIC, CRITIC))
    database.close()
    assert call(monkeypatch, "tasks", str(run)) == 0
    assert printed(capsys)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "--a[/b]\x1b]0;t\x07"], r"No such option: --a[/b]\x1b]0;t\x07; `"),
        (["eval", "guess", "--episodes", "[/q]\x1b"], "Invalid value for '--episodes': "),
        (["--bad[red]x"], "No such option: --bad[red]x; `"),
        (["frob[/x]\x1b"], r"No such command 'frob[/x]\x1b': use one of train, "),
        (["tasks"], "Missing argument 'run'; `"),
        pytest.param(
            ["serve"], "Missing option '--judge'; `", marks=needs_plugin("command", "serve")
        ),
    ],
)
def test_a_command_line_that_is_not_understood_gets_one_line(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch, *arguments) == 2
    error = printed(capsys)
    assert error.startswith(f"error: {said}")
    assert error.count("\n") == 1


def test_no_arguments_are_answered_with_three_next_steps_that_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch) == 0
    out, err = capsys.readouterr()
    steps = re.findall(r"^  rlanything (\w+) ", out, re.MULTILINE)
    assert steps == ["train", "recipes", "new"]
    assert set(steps) <= set(plugins.plugin_names("command"))
    assert max(map(len, out.splitlines())) <= 100
    assert err == ""


def test_a_command_that_cannot_be_imported_says_why_in_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    broken = EntryPoint("broken", "no_such[/q]\x1b", "rlanything.commands")
    ours = plugins.entry_points(group="rlanything.commands")
    monkeypatch.setattr(plugins, "entry_points", lambda group: EntryPoints([*ours, broken]))
    monkeypatch.setenv("COLUMNS", "400")
    assert call(monkeypatch, "--help") == 0
    assert "\x1b" not in capsys.readouterr().out
    assert call(monkeypatch, "broken") == 2
    assert printed(capsys).startswith("error: ")


def test_the_package_is_a_program_too() -> None:
    command = [sys.executable, "-m", "rlanything", "recipes", "--json"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "guess" in [recipe["name"] for recipe in json.loads(out)["recipes"]]
