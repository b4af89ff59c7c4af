"""Lets go what a run does not keep: checkpoints, texts and screenshots."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from rlanything.config.recipe import Recipe
from rlanything.engines.images import IMAGE_NAME
from rlanything.runs.checkpoint import prune
from rlanything.runs.paths import CHECKPOINTS, IMAGES, inside
from rlanything.runs.store.store import Store


def retain(directory: Path, store: Store, recipe: Recipe, iteration: int) -> None:
    """Deletes what the recipe does not keep after an iteration that is kept. Of screenshots those
    stay that a step with its texts has, or the judge is evaluated on: evaluations take others."""
    prune(directory / CHECKPOINTS, recipe.checkpoints.keep, recipe.checkpoints.every)
    if not recipe.store.keep_iterations:
        return
    store.forget_texts(iteration - recipe.store.keep_iterations + 1)
    images = inside(directory, IMAGES)
    if not images.is_dir():
        return
    wanted = store.images()
    for path in images.iterdir():
        if IMAGE_NAME.fullmatch(path.name) and path.name not in wanted:
            with suppress(OSError):  # it takes space, and no run should end for that
                path.unlink()
