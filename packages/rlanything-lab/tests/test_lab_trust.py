"""Judge checks and ablations import and send nothing that was not allowed, and hand on the rest."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from helpers.command import call
from helpers.fake_endpoint import FakeEndpoint
from helpers.guess import GUESS
from rlanything.config.recipe import load_recipe
from rlanything.runs.directory import create_run, now
from rlanything_lab.ablation import grid
from rlanything_lab.ablation.arms import Arm

LOOP = {"tasks": 2, "tasks_per_iteration": 1, "rollouts_per_task": 2, "iterations": 1}
TOUCH = {"name": "subprocess:run", "options": {"args": ["touch", "PWNED"]}}
COMMANDS = ["judge-check", "gradients", "ablate"]
KEYS = ",MY_LEARNER@127.0.0.1,MY_SECRET@127.0.0.1"
"""Keys that runs of an ablation may use: those that its user named, each for one host."""


def given_to(command: str, judge: dict[str, object] | None = None, **sections: object) -> str:
    """Returns what a stranger hands on: a recipe for `ablate`, else a run's directory."""
    if command != "ablate":
        run = Path("run")
        create_run(run, load_recipe(GUESS, {"run_dir": run}), now())
        settings = yaml.safe_load((run / "recipe.yaml").read_text()) | sections
        if judge is not None:
            settings["roles"]["judge"] = {"does": "scores", **judge}
        (run / "recipe.yaml").write_text(yaml.safe_dump(settings))
        return "run"
    data = {"name": "mine", "domain": {"name": "text"}, "loop": LOOP, **sections}
    if judge is not None:
        data["judge"] = judge
    Path("recipe.yaml").write_text(yaml.safe_dump(data))
    return "recipe.yaml"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder in which every command works; PWNED appears there if code runs."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_neither_runs_what_a_stranger_names(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, command, given_to(command, domain=TOUCH)) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "recipe.yaml: domain.name: subprocess:run is code" in line
    assert not Path("PWNED").exists()


@pytest.mark.parametrize("settings", [{"key_variable": "MY_SECRET"}, {}], ids=["named", "default"])
@pytest.mark.parametrize("command", COMMANDS)
def test_neither_sends_a_secret_that_a_stranger_names(
    command: str,
    settings: dict[str, object],
    fake: FakeEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    variable = str(settings.get("key_variable", "OPENAI_API_KEY"))
    monkeypatch.setenv(variable, "s3cr3t")
    engine = {"name": "openai", "url": fake.url, **settings}
    judge: dict[str, object] = {"model": "m", "train": False, "engine": engine}
    assert call(monkeypatch, command, given_to(command, judge=judge)) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"judge.engine.key_variable: the environment variable {variable} would be sent" in line
    assert "s3cr3t" not in line
    assert not fake.requests


def test_an_ablation_hands_on_what_it_was_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import json, os, sys; from pathlib import Path;"
        "names = ('RLANYTHING_ALLOW_CODE', 'RLANYTHING_KEYS');"
        "kept = {k: v for k, v in os.environ.items() if k in names};"
        "Path(sys.argv[1]).write_text(json.dumps([sys.argv[1:], kept]))"
    )
    monkeypatch.setattr(grid, "COMMAND", (sys.executable, "-c", code))
    engine = {"name": "openai", "url": "http://127.0.0.1:1/v1", "key_variable": "MY_SECRET"}
    judge = {"model": "m", "train": False, "engine": engine}
    path = Path("recipe.yaml")
    learner = {"name": "tinker", "url": "http://127.0.0.1:2", "key_variable": "MY_LEARNER"}
    policy = {"model": "m", "lora": {}, "learner": learner}
    written = {"name": "mine", "domain": {"name": "own:Mine"}, "judge": judge, "policy": policy}
    path.write_text(json.dumps(written))
    key = "judge.engine.key_variable=MY_SECRET"
    learns = "policy.learner.key_variable=MY_LEARNER"
    told: dict[str, tuple[list[str], dict[str, str]]] = {}
    for allowed in (True, False):
        said = [key, learns, *([] if allowed else ["domain.name=own:Mine"])]
        [cell] = grid.make_cells(path, said, [Arm("mine", ())], [0], Path("out"), allowed)
        for command in ("train", "resume"):
            grid._start(path, cell, [cell]).process.wait()
            told[f"{command} {allowed}"] = json.loads(Path(command).read_text())
            cell.folder.mkdir(parents=True, exist_ok=True)
        cell.folder.rmdir()
    assert "--allow-code" in told["train True"][0]
    assert "--allow-code" not in told["train False"][0]
    assert "domain.name=own:Mine" in told["train False"][0]
    assert key in told["train True"][0]
    granted = {"RLANYTHING_ALLOW_CODE": "1", "RLANYTHING_KEYS": KEYS}
    assert told["resume True"][1] == told["resume False"][1] == granted
