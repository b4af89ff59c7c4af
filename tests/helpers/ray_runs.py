"""Small runs for the tests of Ray."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from helpers.paths import TINY
from rlanything.progress import Progress
from rlanything.runs.trainer import Trainer
from runs.test_survival import TINIER

QUIET = Progress(Console(quiet=True))
ON_RAY = ("cluster.seats=2", "cluster.launcher=ray", "cluster.per_machine=1")


def trainer(run: Path, *more: str, progress: Progress = QUIET) -> Trainer:
    changes = [f"run_dir={run}", *TINIER, "loop.iterations=2", *more]
    return Trainer(TINY, overrides=changes, progress=progress)


def train(begun: Trainer) -> None:
    """Runs to the end, and gives the seats back at once."""
    begun.train()
    close_models(begun)


def close_models(begun: Trainer) -> None:
    """Gives a trainer's seats back."""
    loaded = begun._session.loaded
    assert loaded is not None
    loaded.components.models.close()
