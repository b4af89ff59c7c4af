"""Runs on seats of a Ray cluster."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from helpers.paths import TINY
from rlanything.progress import Progress
from rlanything.runs.trainer import Trainer
from runs.test_survival import TINIER

QUIET = Progress(Console(quiet=True))


def trainer(run: Path, *more: str, progress: Progress = QUIET) -> Trainer:
    """Returns a run of two small iterations."""
    changes = [f"run_dir={run}", *TINIER, "loop.iterations=2", *more]
    return Trainer(TINY, overrides=changes, progress=progress)


def train(begun: Trainer) -> None:
    """Runs to the end, and gives the seats back at once."""
    begun.train()
    assert begun._session.loaded is not None
    begun._session.loaded.components.models.close()
