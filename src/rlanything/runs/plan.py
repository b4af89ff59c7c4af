"""The plan of a run: decided before anything of it is loaded or written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rlanything.config.recipe import Overrides, Recipe, Source, load_recipe
from rlanything.runs.baseline import open_baseline
from rlanything.runs.directory import allowed_changes, check_resumable, day_begun, existing, now
from rlanything.runs.parts import Parts
from rlanything.runs.paths import RECIPE


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run: its recipe, the parts that are objects, and its directory."""

    recipe: Recipe
    """The recipe, resolved; `object(...)` stands for each part that is an object."""
    parts: Parts
    directory: Path
    begun: datetime
    """Time at which the run began; chat templates show this date until the run ends."""
    written: Recipe
    """The recipe as the run's directory has it."""
    changes: tuple[str, ...] = ()
    """Overrides of a resumed run, which are written into its recipe."""
    resumed: bool = False
    """Whether the directory exists already."""


def plan_new(
    source: Source, parts: Parts, overrides: Overrides, run_dir: str | Path | None, allow_code: bool
) -> RunPlan:
    """Returns the plan of a new run. Raises `RecipeError` if the recipe is wrong, its directory
    exists, or its baseline cannot be used."""
    recipe = load_recipe(source, overrides, allow_code=allow_code)
    if run_dir is not None:
        recipe = recipe.model_copy(update={"run_dir": Path(run_dir)})
    recipe = parts.named_in(recipe)
    if recipe.directory.exists():
        raise existing(recipe.directory)
    if recipe.evaluation.baseline:
        open_baseline(recipe.evaluation.baseline, recipe).close()
    return RunPlan(recipe, parts, recipe.directory, datetime.fromisoformat(now()), written=recipe)


def plan_resumed(directory: Path, parts: Parts, overrides: Overrides, allow_code: bool) -> RunPlan:
    """Returns the plan of a run that was stopped. Raises `RecipeError` if the directory is not a
    run's, an object is missing, or an override would change results; `RunDirectoryError` if there
    are links in the directory; `StoreError` if its store cannot be read."""
    check_resumable(directory)
    changes = tuple(allowed_changes(overrides))
    written = load_recipe(directory / RECIPE, overrides, allow_code=allow_code)
    recipe = parts.named_in(written.model_copy(update={"run_dir": directory}))
    return RunPlan(recipe, parts, directory, day_begun(directory), written, changes, resumed=True)
