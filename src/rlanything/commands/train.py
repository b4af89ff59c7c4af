"""`rlanything train`: trains a recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from rlanything.progress import Progress
from rlanything.terminal import Terminal

if TYPE_CHECKING:
    from rlanything.runs.trainer import Trainer

ALLOW_CODE: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-code", help="Import code that the recipe names as module:name; it runs as you."
    ),
]
RECIPE_HELP = "A YAML recipe, or the name of one that ships (`rlanything recipes` lists them)."


def train(
    recipe: Annotated[str, typer.Argument(help=RECIPE_HELP)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="section.key=value, e.g. policy.learning_rate=1e-5 run_dir=PATH"),
    ] = None,
    allow_code: ALLOW_CODE = False,
) -> None:
    """Run the closed loop that a recipe describes."""
    from rlanything.config.recipe import load_recipe

    # Read before torch is imported, so that a typo is reported immediately.
    loaded = load_recipe(recipe, overrides or [], allow_code=allow_code)
    from rlanything.runs.trainer import Trainer

    progress = Progress(Terminal())
    trainer = Trainer(loaded, allow_code=allow_code, progress=progress)
    train_to_the_end(trainer, progress)


def train_to_the_end(trainer: Trainer, progress: Progress) -> None:
    """Trains, then prints the run's closing lines."""
    lines = trainer.train()
    progress.console.rule()
    for line in lines:
        progress.log(line)
