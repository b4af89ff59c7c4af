"""The game of `examples/guess.py` in a loop that takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.command import call
from helpers.paths import ROOT
from rlanything.config.recipe import load_recipe

GUESS = ROOT / "examples" / "guess.yaml"
FEW = (
    *("loop.iterations=2", "loop.tasks=16", "loop.tasks_per_iteration=4"),
    *("loop.rollouts_per_task=4", "policy.minibatches=2", "judge.minibatches=1"),
    *("evaluation.episodes=8", "evaluation.judged_episodes=4"),
    "evaluation.splits=[in_domain, ood]",
)
"""Overrides of that recipe: two iterations of four tasks."""
ONE = (
    *("loop.iterations=1", "loop.tasks_per_iteration=1", "loop.rollouts_per_task=2"),
    *("evaluation.episodes=2", "evaluation.judged_episodes=2"),
)
"""Further overrides: one iteration of one task."""


def write_recipe(path: Path) -> Path:
    """Writes the recipe with these overrides, as a run's directory holds it."""
    path.write_text(load_recipe(GUESS, FEW).model_dump_json(), encoding="utf-8")
    return path


def train_once(directory: Path, *overrides: str) -> Path:
    """Trains one iteration of one task by the command, and returns the run's directory."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        arguments = ("train", str(GUESS), *FEW, f"run_dir={directory}", *ONE, *overrides)
        assert call(monkeypatch, *arguments) == 0
    return directory
