"""`rlanything train`: a run from a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rlanything.progress import Progress

if TYPE_CHECKING:
    from rlanything.runs.trainer import Run


def train(
    recipe: Annotated[Path, typer.Argument(help="A YAML recipe; see recipes/.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="section.key=value, e.g. policy.learning_rate=1e-5 run_dir=PATH"),
    ] = None,
) -> None:
    """Run the closed loop that a recipe describes."""
    from rlanything.config.recipe import load_recipe
    from rlanything.runs.trainer import Run

    progress = Progress(Console())
    train_to_the_end(Run(load_recipe(recipe, overrides or []), progress), progress)


def train_to_the_end(run: Run, progress: Progress) -> None:
    """Trains, then prints the run's closing lines."""
    lines = run.train()
    progress.console.rule()
    for line in lines:
        progress.log(line)
