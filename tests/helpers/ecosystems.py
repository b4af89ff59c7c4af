"""Runs of shipped recipes, small, from the first line to the last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from rlanything.config.recipe import load_recipe
from rlanything.config.shipped import shipped_files
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

SMALL = (
    *("threads=1", "loop.iterations=1", "loop.tasks=2", "loop.tasks_per_iteration=2"),
    *("loop.rollouts_per_task=2", "judge.samples_per_step=1", "environment.workers=1"),
    *("evaluation.episodes=2", "evaluation.judged_episodes=1"),
)


@dataclass(frozen=True, slots=True)
class SmallRun:
    """What is left of a run."""

    recipe_lines: int
    steps: int
    """Of its rollouts."""
    failures: int
    """Episodes that could not be played."""
    metrics: dict[str, float | None]
    """Of its iteration."""


def trained(recipe: str, folder: Path, *overrides: str) -> SmallRun:
    """Trains a shipped recipe for one iteration of a few short episodes."""
    small = [f"run_dir={folder}", *SMALL, "loop.max_steps=5", *overrides]
    trainer = Trainer(load_recipe(recipe, small), progress=Progress(Console(quiet=True)))
    [iteration] = list(trainer)
    store = Store(folder / "run.sqlite")
    (steps,) = store.query("SELECT COUNT(*) FROM steps")[0]
    store.close()
    lines = len((shipped_files()[recipe]).read_text(encoding="utf-8").splitlines())
    failures = len(iteration.result.failures)
    return SmallRun(lines, steps, failures, dict(iteration.metrics))
