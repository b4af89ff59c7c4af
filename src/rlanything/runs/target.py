"""Targets of commands: a run, a recipe, a model or a scripted player, by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

from rlanything.config.recipe import Recipe, RecipeError, load_recipe, override_keys
from rlanything.config.shipped import SUFFIXES, near_recipes, see_shipped, shipped_files
from rlanything.config.yaml import typed
from rlanything.domains.base import Domain
from rlanything.engines.shipped import NAMES, is_path
from rlanything.progress import Progress
from rlanything.roles.baselines import ExpertAgent, RandomAgent
from rlanything.rollout.episodes import Agent
from rlanything.runs.directory import check_run, day_begun
from rlanything.runs.paths import RECIPE
from rlanything.runs.recovery import last_position

PLAYERS: Mapping[str, Callable[[Domain], Agent]] = {"expert": ExpertAgent, "random": RandomAgent}
"""Players without a model, by name."""


@dataclass(frozen=True, slots=True)
class RunTarget:
    """A run, with the models that it trained."""

    name: str

    @property
    def day(self) -> datetime:
        """The time at which the run began: its chat templates show this date."""
        return day_begun(Path(self.name))

    def recipe(self, overrides: Sequence[str], allow_code: bool) -> Recipe:
        """Returns the run's recipe, as it was before training. Raises `RecipeError`, also for an
        override that names another model than the run's own."""
        check_run(Path(self.name))
        recipe = load_recipe(Path(self.name) / RECIPE, overrides, allow_code=allow_code)
        trained = recipe.trained_roles
        own = {"roles", *trained, *(f"{role}.model" for role in trained)}
        for key in override_keys(overrides):
            if key.removeprefix("roles.") in own:
                raise RecipeError(
                    f"{key}: {self.name} is asked with the model that it trained: leave this out, "
                    "or name single keys"
                )
        return recipe

    def checkpoint(self, progress: Progress) -> Path:
        """Returns the folder of the run's latest intact weights. Raises `RecipeError` if there are
        none."""
        checkpoint = last_position(Path(self.name), progress.log).checkpoint
        if checkpoint is None:
            raise RecipeError(
                f"{self.name} has no intact checkpoint: let it finish an iteration, or see what "
                f"`rlanything doctor {typed(self.name)}` says"
            )
        return checkpoint


@dataclass(frozen=True, slots=True)
class RecipeTarget:
    """A recipe: its models before training."""

    name: str

    def recipe(self, overrides: Sequence[str], allow_code: bool) -> Recipe:
        return load_recipe(self.name, overrides, allow_code=allow_code)


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """A model: a folder, an id of a model hub, or the name of a shipped one."""

    name: str


@dataclass(frozen=True, slots=True)
class PlayerTarget:
    """A scripted player: one of `PLAYERS`."""

    name: str


Target: TypeAlias = RunTarget | RecipeTarget | ModelTarget | PlayerTarget


def find_target(name: str) -> Target:
    """Returns what a name stands for. Raises `RecipeError` for one that is mistyped."""
    if name in PLAYERS:
        return PlayerTarget(name)
    path = Path(name)
    shipped = not path.exists() and name in shipped_files()
    if shipped or (path.suffix in SUFFIXES and path.is_file()):
        return RecipeTarget(name)
    if is_run(name):
        return RunTarget(name)
    reject_mistyped(name)
    return ModelTarget(name)


def is_run(name: str) -> bool:
    return (Path(name) / RECIPE).is_file()


def typed_domain(name: str | None) -> list[str]:
    """Returns the override for a domain that the user typed, which may also be in a shipped
    example; empty without a name."""
    if not name:
        return []
    see_shipped(name)
    return [f"domain.name={json.dumps(name)}"]


def reject_mistyped(name: str) -> None:
    """Raises `RecipeError` for the name of a model that looks like a path, a run or a recipe: it
    would be looked up on a model hub."""
    path, first = Path(name), name.partition("/")[0]
    if name in NAMES or path.exists() or ":" in name:
        return
    local = len(path.parts) == 2 and Path(first).is_dir()
    local = local or path.suffix in SUFFIXES or is_path(name)
    runs = [str(file.parent) for at in ("*", "*/*") for file in Path().glob(f"{at}/{RECIPE}")]
    near = [*near_recipes(name), *get_close_matches(name, runs, cutoff=0.8)]
    if local or near or get_close_matches(first, ["runs"], cutoff=0.75):
        hint = f"did you mean {' or '.join(near[:3])}?" if near else "check the path"
        raise RecipeError(f"{name}: there is no such run, recipe or folder; {hint}")


def with_weights(recipe: Recipe, checkpoint: Path) -> Recipe:
    """Returns a recipe whose trained roles have the weights of a checkpoint."""
    models = {f"roles.{name}.model": str(checkpoint / name) for name in recipe.trained_roles}
    return load_recipe(recipe, models)
