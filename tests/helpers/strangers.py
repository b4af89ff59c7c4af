"""Recipes and run directories as somebody else may hand them on."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from helpers.guess import GUESS
from rlanything.config.recipe import load_recipe
from rlanything.config.roles import SHORT_FORM
from rlanything.runs.directory import create_run, now

Captured = pytest.CaptureFixture[str]


def recipe(**sections: object) -> Path:
    """A recipe in a file; `sections` in place of the harmless ones."""
    path = Path("recipe.yaml")
    loop = {"tasks": 2, "tasks_per_iteration": 1, "rollouts_per_task": 2, "iterations": 1}
    data = {"name": "mine", "domain": {"name": "text"}, "loop": loop, **sections}
    path.write_text(yaml.safe_dump(data))
    return path


def recorded(**sections: object) -> Path:
    """A run directory that has not begun, as somebody may hand it on; `sections` were changed."""
    run = Path("run")
    create_run(run, load_recipe(GUESS, {"run_dir": run}), now())
    settings = yaml.safe_load((run / "recipe.yaml").read_text())
    for name, section in sections.items():
        (settings["roles"] if name in SHORT_FORM else settings)[name] = section
    (run / "recipe.yaml").write_text(yaml.safe_dump(settings))
    return run


def refusal(capsys: Captured) -> str:
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line
