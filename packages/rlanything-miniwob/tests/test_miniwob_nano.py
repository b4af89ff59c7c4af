"""The loop with the nano models for web tasks, in miniature."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from rlanything.config.recipe import load_recipe
from rlanything.config.shipped import shipped_files
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from rlanything_miniwob.domain import MiniWob

QUIET = Progress(Console(quiet=True))


@pytest.mark.parametrize(
    "recipe", ["miniwob-nano", pytest.param("miniwob-vision-nano", marks=pytest.mark.slow)]
)
def test_the_recipe_goes_through_the_loop(miniwob: MiniWob, recipe: str, tmp_path: Path) -> None:
    del miniwob  # which skips where there is no browser
    overrides = [
        *(f"run_dir={tmp_path / 'run'}", "threads=1", "loop.iterations=1", "loop.tasks=8"),
        *("loop.tasks_per_iteration=8", "loop.rollouts_per_task=2", "loop.max_steps=3"),
        *("judge.samples_per_step=2", "evaluation.episodes=4", "adapter.tries=2"),
    ]
    lines = Trainer(load_recipe(shipped_files()[recipe], overrides), progress=QUIET).train()
    assert any(line.startswith("policy, in_domain: ") for line in lines)
    store = Store(tmp_path / "run" / "run.sqlite")
    found = store.query("SELECT COUNT(*), MAX(outcome), MIN(outcome) FROM trajectories")
    asked = store.query("SELECT COUNT(*) FROM proposals")
    store.close()
    assert found == [(16, 1, -1)]
    assert asked[0][0] > 0
