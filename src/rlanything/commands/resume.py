"""`rlanything resume`: a stopped run, continued."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rlanything.commands.train import train_to_the_end
from rlanything.progress import Progress


def resume(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="environment.*, checkpoints.*, store.*, tracker.* or loop.iterations=value"
        ),
    ] = None,
) -> None:
    """Continue a stopped run; its results are the same as without the stop."""
    from rlanything.runs.trainer import Trainer

    progress = Progress(Console())
    trainer = Trainer.resume(run, overrides=overrides or [], progress=progress)
    train_to_the_end(trainer, progress)
