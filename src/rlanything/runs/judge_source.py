"""A judge of steps by name: a run's, a recipe's, or any model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlanything.cluster.open import Here
from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.domains.base import Domain, UnitTestDomain
from rlanything.domains.registry import load_domain
from rlanything.domains.text import TextDomain
from rlanything.engines.shipped import NAMES
from rlanything.progress import Progress
from rlanything.roles.judges.base import Judge
from rlanything.runs.build import build_chat_model, build_judge
from rlanything.runs.directory import check_run
from rlanything.runs.eval_target import checkpoint_of, is_recipe, is_run, refuse_mistyped
from rlanything.runs.inside import RECIPE


@dataclass(frozen=True, slots=True)
class JudgeSource:
    """The name of a judge, and how it is asked."""

    name: str
    """A run directory, a recipe, or a model (folder, id or nano)."""
    overrides: Sequence[str] = ()
    """`section.key=value` of its recipe."""
    domain: str | None = None
    """The domain whose prompts a bare model is asked with; None: that for which a shipped model was
    made, and those of `TextDomain` for all others."""
    allow_code: bool = False
    """Whether code that the recipe names may be imported."""

    def open(self, progress: Progress) -> Judge:
        """Returns the judge, in this process. Raises `RecipeError`, `ModelError`, `DomainError` or
        `JudgeError` for one that cannot be used, and for those that write tests."""
        recipe, domain = self._recipe_and_domain(progress)
        if isinstance(domain, UnitTestDomain):
            raise RecipeError(
                f"{self.name}: judges of this domain write tests and score no steps; name another"
            )
        models = Here(recipe.threads)
        return build_judge(
            recipe.judge, domain, lambda: build_chat_model(recipe.judge, "judge", models)
        )

    def _recipe_and_domain(self, progress: Progress) -> tuple[Recipe, Domain]:
        """Returns the recipe whose section `judge` is meant, and the domain whose prompts it is
        asked with."""
        recipe = recorded_recipe(self.name, self.overrides, self.allow_code, progress)
        if recipe is None:
            return self._of_model()
        if self.domain is not None:
            raise RecipeError("--domain: a run and a recipe have their own; leave it out")
        return recipe, load_domain(recipe.domain.name, recipe.domain.options)

    def _of_model(self) -> tuple[Recipe, Domain]:
        if self.name not in NAMES:
            refuse_mistyped(self.name)
        domain = self.domain or _made_for(self.name)
        made = {
            "name": "judge",
            "domain": {"name": domain or "alfworld"},  # a recipe has one; prompts are as said
            "judge": {"model": self.name},
        }
        recipe = load_recipe(
            made, self.overrides, allow_code=self.allow_code, place="the command line"
        )
        if domain is None:
            return recipe, TextDomain()
        return recipe, load_domain(domain, recipe.domain.options)


def recorded_recipe(
    name: str, overrides: Sequence[str], allow_code: bool, progress: Progress
) -> Recipe | None:
    """Returns the recipe in which a judge is described: that of a run, with the model that it
    trained last, or the recipe of that name; None where the name is neither's."""
    if is_recipe(name):
        return load_recipe(name, overrides, allow_code=allow_code)
    if not is_run(name):
        return None
    check_run(Path(name))
    recipe = load_recipe(Path(name) / RECIPE, overrides, allow_code=allow_code)
    if not recipe.judge.trains:
        return recipe
    return load_recipe(recipe, {"judge.model": str(checkpoint_of(name, progress) / "judge")})


def _made_for(model: str) -> str | None:
    """Returns the domain for which a shipped model was made; None for other models."""
    if model not in NAMES:
        return None
    card = json.loads((NAMES[model] / "card.json").read_text(encoding="utf-8"))
    return card["plan"]["domain"]
