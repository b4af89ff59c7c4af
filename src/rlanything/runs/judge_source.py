"""A judge of steps by name: a run's, a recipe's, or any model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlanything.cluster.open import Here
from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.engines.shipped import NAMES
from rlanything.progress import Progress
from rlanything.roles.judges.base import Judge
from rlanything.runs.build import build_chat_model, build_judge
from rlanything.runs.directory import check_run
from rlanything.runs.eval_target import (
    checkpoint_of,
    is_recipe,
    is_run,
    made_for,
    refuse_mistyped,
    refuse_models,
    typed_domain,
)
from rlanything.runs.inside import RECIPE

_UNREAD = ("policy", "adapter", "curriculum", "loop", "environment", "evaluation", "tracker")
_UNREAD += ("cluster", "store", "run_dir")
"""Sections of a recipe, and what is none of a judge's."""


@dataclass(frozen=True, slots=True)
class JudgeSource:
    """The name of a judge, and how it is asked."""

    name: str
    """A run directory, a recipe, or a model (folder, id or nano)."""
    overrides: Sequence[str] = ()
    """`section.key=value` of its recipe."""
    domain: str | None = None
    """The domain whose prompts a bare model is asked with; None: that for which a shipped model was
    made, and the plain ones of `text` for all others."""
    allow_code: bool = False
    """Whether code that the recipe names may be imported."""

    def refuse_unread(self) -> None:
        """Raises `RecipeError` for overrides of what a judge alone does not read."""
        for override in self.overrides:
            key = override.partition("=")[0]
            if key.partition(".")[0] in _UNREAD:
                raise RecipeError(f"{key}: a judge alone does not read it; leave it out")

    def open(self, progress: Progress) -> Judge:
        """Returns the judge, in this process. Raises `RecipeError`, `ModelError`, `DomainError` or
        `JudgeError` for one that cannot be used, and for those that write tests."""
        self.refuse_unread()
        recipe = recorded_recipe(self.name, self.overrides, self.allow_code, progress)
        recipe = self.recipe() if recipe is None else recipe
        domain = self.prompts(recipe)
        models = Here(recipe.threads)
        return build_judge(
            recipe.judge, domain, lambda: build_chat_model(recipe.judge, "judge", models)
        )

    def recipe(self) -> Recipe:
        """Returns the recipe in which the judge is described as it was before any training: a
        run's, that of its name, or one that is made for the model. Raises `RecipeError`."""
        recipe = written_recipe(self.name, self.overrides, self.allow_code)
        if recipe is not None:
            return recipe
        if self.name not in NAMES:
            refuse_mistyped(self.name)
        made = {
            "name": "judge",
            "domain": {"name": made_for(self.name) or "text"},
            "judge": {"model": self.name},
        }
        overrides, place = [*typed_domain(self.domain), *self.overrides], "the command line"
        return load_recipe(made, overrides, allow_code=self.allow_code, place=place)

    def prompts(self, recipe: Recipe) -> Domain:
        """Returns the domain whose prompts the judge is asked with. Raises `DomainError`, and
        `RecipeError` where judges of it score no steps, or another one is asked for."""
        if self.domain is not None and (is_recipe(self.name) or is_run(self.name)):
            raise RecipeError("--domain: a run and a recipe have their own; leave it out")
        domain = load_domain(recipe.domain.name, recipe.domain.options)
        if domain.capabilities.judge == "tests":
            raise RecipeError(
                f"{self.name}: judges of this domain write tests and score no steps; name another"
            )
        return domain


def written_recipe(name: str, overrides: Sequence[str], allow_code: bool) -> Recipe | None:
    """Returns a run's recipe, or the recipe of that name; None where the name is neither's. Raises
    `RecipeError`."""
    if is_recipe(name):
        return load_recipe(name, overrides, allow_code=allow_code)
    if not is_run(name):
        return None
    check_run(Path(name))
    return load_recipe(Path(name) / RECIPE, overrides, allow_code=allow_code)


def recorded_recipe(
    name: str, overrides: Sequence[str], allow_code: bool, progress: Progress
) -> Recipe | None:
    """Returns the recipe in which a judge is described: that of a run, with the model that it
    trained last, or the recipe of that name; None where the name is neither's."""
    recipe = written_recipe(name, overrides, allow_code)
    if recipe is None or not is_run(name):
        return recipe
    refuse_models(name, recipe, overrides)
    if not recipe.judge.trains:
        return recipe
    return load_recipe(recipe, {"judge.model": str(checkpoint_of(name, progress) / "judge")})
