"""`rlanything train`: a run from a recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rlanything.progress import Progress

if TYPE_CHECKING:
    from rlanything.runs.trainer import Trainer

RECIPE_HELP = "A YAML recipe, or the name of one that ships (`rlanything recipes` lists them)."


def train(
    recipe: Annotated[str, typer.Argument(help=RECIPE_HELP)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="section.key=value, e.g. policy.learning_rate=1e-5 run_dir=PATH"),
    ] = None,
) -> None:
    """Run the closed loop that a recipe describes."""
    from rlanything.runs.trainer import Trainer

    progress = Progress(Console())
    train_to_the_end(Trainer(recipe, overrides=overrides or [], progress=progress), progress)


def train_to_the_end(trainer: Trainer, progress: Progress) -> None:
    """Trains, then prints the run's closing lines."""
    lines = trainer.train()
    progress.console.rule()
    for line in lines:
        progress.log(line)
