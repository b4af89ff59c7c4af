"""The evaluation before training, copied from another run that began with the same settings.

Runs that are compared have the same models, tasks and seed before their first iteration, so one
evaluation is valid for all of them.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from rlanything.config.recipe import Recipe, RecipeError, first_difference, load_recipe
from rlanything.config.roles import RoleConfig, TrainedRoleConfig
from rlanything.config.worlds import PlayedDomain
from rlanything.engines.base import ModelError
from rlanything.engines.images import ImageBook
from rlanything.files import replace_file
from rlanything.runs.paths import IMAGES, RECIPE, STORE, RunDirectoryError, run_path
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store

LEARNING = set(TrainedRoleConfig.model_fields) - set(RoleConfig.model_fields) | {"train", "weight"}
"""Settings of a role that only affect how it learns, or what is learned from it."""


def beginning(recipe: Recipe) -> dict[str, Any]:
    """Returns the settings on which the evaluation before training depends."""
    return {
        "seed": recipe.seed,
        "threads": recipe.threads,
        "domain": recipe.domain.model_dump() | {"options": _played_options(recipe)},
        **{
            name: role.model_dump(exclude=LEARNING)
            for name, role in (recipe.players | recipe.judges).items()
        },
        "feedback": recipe.feedback.model_dump(include={"judge_lambda"}),
        "loop": recipe.loop.model_dump(include={"max_steps"}),
        "evaluation": recipe.evaluation.model_dump(exclude={"baseline", "every"}),
    }


def _played_options(recipe: Recipe) -> dict[str, Any]:
    """Returns the options of the domain, of each of several worlds without how it trains."""
    worlds, played = recipe.domain.worlds, set(PlayedDomain.model_fields)
    if not worlds:
        return recipe.domain.options
    return {label: world.model_dump(include=played) for label, world in worlds.items()}


def has_baseline(folder: Path, recipe: Recipe) -> bool:
    """Returns whether `open_baseline` accepts a run directory."""
    try:
        open_baseline(folder, recipe).close()
    except (RecipeError, RunDirectoryError):
        return False
    return True


def open_baseline(folder: Path, recipe: Recipe) -> Store:
    """Returns the store of a run that began as `recipe` does and was evaluated before training.
    Raises `RecipeError`."""
    key = "evaluation.baseline"
    if not folder.is_dir():
        raise RecipeError(f"{key}: {folder} is no run; give the directory of one, or leave it out")
    try:
        there = load_recipe(run_path(folder, RECIPE), known=recipe)
    except RecipeError as error:
        raise RecipeError(f"{key}: {error}") from None
    differing = first_difference(beginning(there), beginning(recipe))
    if differing is not None:
        raise RecipeError(f"{key}: {folder} began otherwise ({differing} differs); leave it out")
    try:
        store = Store(folder / STORE)
        evaluated = 0 in store.evaluated_iterations()
    except StoreError as error:
        raise RecipeError(f"{key}: {error}; leave it out") from None
    if not evaluated:
        store.close()
        raise RecipeError(f"{key}: {folder} was not evaluated before training; leave it out")
    return store


def take_baseline(store: Store, recipe: Recipe, directory: Path) -> None:
    """Copies the recipe's baseline into the store of its run, and the screenshots on which the
    judge is evaluated into the run's directory. Raises `RecipeError`."""
    folder = recipe.evaluation.baseline
    assert folder is not None
    with closing(open_baseline(folder, recipe)) as other:
        for name in other.judge_eval_images():
            try:
                data = ImageBook((run_path(folder, IMAGES),)).data(name)
            except ModelError as error:
                raise RecipeError(f"evaluation.baseline: {error}; or leave it out") from None
            (directory / IMAGES).mkdir(exist_ok=True)
            replace_file(directory / IMAGES / name, data, synced=True)
        store.take_beginning(other)
