"""A judge of steps by name: a run's, a recipe's, or any model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rlanything.cluster.open import Here
from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.config.roles import SHORT_FORM, role_key
from rlanything.domains.base import Domain, UnitTestDomain
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
    refuse_mistyped,
    refuse_models,
    typed_domain,
)
from rlanything.runs.inside import RECIPE

_UNREAD = ("curriculum", "loop", "environment", "evaluation", "tracker", "cluster", "store")
_UNREAD += ("run_dir",)
"""Sections of a recipe that a judge alone does not read."""


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
    role: str | None = None
    """The judge's name in a recipe with several; None: the only one."""

    def refuse_unread(self) -> None:
        """Raises `RecipeError` for overrides of what a judge alone does not read."""
        others = [name for name in SHORT_FORM if SHORT_FORM[name] != "scores"]
        for override in self.overrides:
            key = override.partition("=")[0]
            if key.removeprefix("roles.").partition(".")[0] in (*_UNREAD, *others):
                raise RecipeError(f"{key}: a judge alone does not read it; leave it out")

    def open(self, progress: Progress) -> Judge:
        """Returns the judge, in this process. Raises `RecipeError`, `ModelError`, `DomainError` or
        `JudgeError` for one that cannot be used, and for those that write tests."""
        self.refuse_unread()
        recipe = recorded_recipe(self, progress)
        recipe = self.recipe() if recipe is None else recipe
        domain, models = self.prompts(recipe), Here(recipe.threads)
        name = recipe.one_judge(self.role)
        config = recipe.judges[name]
        chat_model = partial(build_chat_model, config, name, models)
        return build_judge(config, domain, chat_model, role_key(name))

    def recipe(self) -> Recipe:
        """Returns the recipe in which the judge is described as it was before any training: a
        run's, that of its name, or one that is made for the model. Raises `RecipeError`."""
        recipe = written_recipe(self)
        if recipe is not None:
            return recipe
        if self.name not in NAMES:
            refuse_mistyped(self.name)
        made = {
            "name": "judge",
            "domain": {"name": _made_for(self.name)},
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
        if isinstance(domain, UnitTestDomain):
            raise RecipeError(
                f"{self.name}: judges of this domain write tests and score no steps; name another"
            )
        return domain


def written_recipe(source: JudgeSource) -> Recipe | None:
    """Returns a run's recipe, or the recipe of that name; None where the name is neither's. Raises
    `RecipeError`."""
    if is_recipe(source.name):
        return load_recipe(source.name, source.overrides, allow_code=source.allow_code)
    if not is_run(source.name):
        return None
    check_run(Path(source.name))
    recipe = Path(source.name) / RECIPE
    return load_recipe(recipe, source.overrides, allow_code=source.allow_code)


def recorded_recipe(source: JudgeSource, progress: Progress) -> Recipe | None:
    """Returns the recipe in which a judge is described: that of a run, with the model that it
    trained last, or the recipe of that name; None where the name is neither's."""
    recipe = written_recipe(source)
    if recipe is None or not is_run(source.name):
        return recipe
    refuse_models(source.name, recipe, source.overrides)
    name = recipe.one_judge(source.role)
    if name not in recipe.trained_roles:
        return recipe
    model = str(checkpoint_of(source.name, progress) / name)
    return load_recipe(recipe, {f"roles.{name}.model": model})


def _made_for(model: str) -> str:
    """Returns the domain for which a shipped model was made; plain prompts for other models."""
    if model not in NAMES:
        return "text"
    card = json.loads((NAMES[model] / "card.json").read_text(encoding="utf-8"))
    return card["plan"]["domain"]
