"""A judge of steps by name: a run's, a recipe's, or any model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rlanything.cluster.open import InProcessModels
from rlanything.config.recipe import Recipe, RecipeError, load_recipe, override_keys
from rlanything.config.roles import SHORT_FORM, role_key
from rlanything.config.shipped import domain_section
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.engines.shipped import domain_of
from rlanything.progress import Progress
from rlanything.roles.judges.base import Judge
from rlanything.runs.build import build_chat_model, build_judge
from rlanything.runs.target import (
    RecipeTarget,
    RunTarget,
    Target,
    find_target,
    typed_domain,
    with_weights,
)

_UNREAD = ("curriculum", "loop", "environment", "evaluation", "tracker", "cluster", "store")
_UNREAD += ("run_dir", *(name for name, does in SHORT_FORM.items() if does != "scores"))
"""Sections and keys of a recipe that a judge alone does not read."""


@dataclass(frozen=True, slots=True)
class JudgeSource:
    """The name of a judge, and how it is asked."""

    name: str
    """A run directory, a recipe, or a model (folder, id or nano)."""
    overrides: Sequence[str] = ()
    """`section.key=value` of its recipe."""
    domain: str | None = None
    """Domain whose prompts a bare model gets; None: that of a shipped model, and the plain prompts
    of `text` for other models."""
    allow_code: bool = False
    """Whether code that the recipe names may be imported."""
    role: str | None = None
    """The judge's name in a recipe with several; None: the only one."""

    @property
    def target(self) -> Target:
        return find_target(self.name)

    def refuse_unread(self) -> None:
        """Raises `RecipeError` for overrides that a judge alone does not read."""
        for key in override_keys(self.overrides):
            if key.removeprefix("roles.").partition(".")[0] in _UNREAD:
                raise RecipeError(f"{key}: a judge alone does not read it; leave it out")

    def open(self, progress: Progress) -> Judge:
        """Returns the judge, in this process. Raises `RecipeError`, `ModelError`, `DomainError` or
        `JudgeError` for one that cannot be used, and for one that writes tests."""
        self.refuse_unread()
        recipe = self.trained_recipe(progress)
        domain, models = self.prompts(recipe), InProcessModels(recipe.threads)
        name = recipe.one_judge(self.role)
        config = recipe.judges[name]
        chat_model = partial(build_chat_model, config, name, models)
        return build_judge(config, domain, chat_model, role_key(name))

    def recipe(self) -> Recipe:
        """Returns the recipe of the judge before any training: that of a run, a recipe, or one that
        is made for the model. Raises `RecipeError`."""
        target = self.target
        if isinstance(target, RunTarget | RecipeTarget):
            return target.recipe(self.overrides, self.allow_code)
        made = {
            "name": "judge",
            "domain": {} if self.domain else domain_section(domain_of(self.name) or "text"),
            "judge": {"model": self.name},
        }
        overrides, place = [*typed_domain(self.domain), *self.overrides], "the command line"
        return load_recipe(made, overrides, allow_code=self.allow_code, place=place)

    def trained_recipe(self, progress: Progress) -> Recipe:
        """Returns the recipe with the judge that its run trained last; `recipe()` if there is no
        run that trained it. Raises `RecipeError`."""
        recipe, target = self.recipe(), self.target
        if isinstance(target, RunTarget) and recipe.one_judge(self.role) in recipe.trained_roles:
            return with_weights(recipe, target.checkpoint(progress))
        return recipe

    def prompts(self, recipe: Recipe) -> Domain:
        """Returns the domain whose prompts the judge gets. Raises `DomainError`, and `RecipeError`
        if judges of the domain score no steps, or a run or recipe is given another domain."""
        if self.domain is not None and isinstance(self.target, RunTarget | RecipeTarget):
            raise RecipeError("--domain: a run and a recipe have their own; leave it out")
        domain = load_domain(recipe.domain.name, recipe.domain.options)
        if domain.capabilities.judge == "tests":
            raise RecipeError(
                f"{self.name}: judges of this domain write tests and score no steps; name another"
            )
        return domain
