"""The game of `examples/guess.py` in a loop that takes seconds."""

from __future__ import annotations

from pathlib import Path

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


def write_recipe(path: Path) -> Path:
    """Writes the recipe with these overrides, as a run's directory holds it."""
    path.write_text(load_recipe(GUESS, FEW).model_dump_json(), encoding="utf-8")
    return path
