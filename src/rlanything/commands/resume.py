"""`rlanything resume`: continues a stopped run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlanything.commands.train import ALLOW_CODE, train_to_the_end
from rlanything.progress import Progress
from rlanything.terminal import Terminal


def resume(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="environment.*, cluster.*, checkpoints.*, store.*, tracker.*, "
            "loop.iterations=value, or an endpoint's address: adapter.engine.url=value"
        ),
    ] = None,
    allow_code: ALLOW_CODE = False,
) -> None:
    """Continue a stopped run; its results are the same as without the stop."""
    from rlanything.runs.trainer import Trainer

    progress = Progress(Terminal())
    trainer = Trainer.resume(
        run, overrides=overrides or [], allow_code=allow_code, progress=progress
    )
    train_to_the_end(trainer, progress)
