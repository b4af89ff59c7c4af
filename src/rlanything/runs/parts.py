"""The parts of a run that a program hands over as objects, in place of what its recipe names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from rlanything.algorithm.advantages import Advantage
from rlanything.algorithm.losses import Loss
from rlanything.algorithm.options import FunctionConfig
from rlanything.config.recipe import Recipe, RecipeError
from rlanything.config.roles import role_key
from rlanything.domains.base import Domain
from rlanything.plugins import is_object, missing_members, object_name
from rlanything.roles.adapter import Adapter
from rlanything.roles.judges.base import Judge

PROTOCOLS: dict[str, type] = {"domain": Domain, "judge": Judge, "adapter": Adapter}
"""What an object in the place of each part has; a loss and an advantage are functions."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Objects for some parts of a run; None: what the recipe names."""

    domain: Domain | None = None
    judge: Judge | None = None
    adapter: Adapter | None = None
    loss: Loss | None = None
    """The policy's; the judge's is named by `judge.loss`."""
    advantage: Advantage | None = None

    def __post_init__(self) -> None:
        """Raises `RecipeError` for a part that is none of its kind."""
        for part in fields(self):
            given: Any = getattr(self, part.name)
            if given is None:
                continue
            place = f"{part.name}: {object_name(given)}"
            if isinstance(given, type):
                raise RecipeError(f"{place} is a class: hand over an object of it")
            if part.name not in PROTOCOLS:
                lacking = "" if callable(given) else "__call__"
            else:
                lacking = missing_members(given, PROTOCOLS[part.name])
            if lacking:
                remedy = "hand over an object that has them"
                if part.name == "judge":
                    remedy += ", or a function as rlanything.FunctionJudge(function)"
                raise RecipeError(f"{place} is no {part.name}, it lacks {lacking}: {remedy}")

    def named_in(self, recipe: Recipe) -> Recipe:
        """Returns the recipe with `object(...)` for the name of each part that is here, so that it
        says of itself what it cannot bring back.

        Raises `RecipeError` for a part that the recipe says is an object and that is not here."""
        if len(recipe.judges) > 1 and self.judge is not None:
            names = ", ".join(recipe.judges)
            raise RecipeError(f"judge: this recipe has several ({names}): name them there")
        places = {
            "domain": [("domain", "name")],
            "judge": [(name, "name") for name in recipe.judges],
            "adapter": [(recipe.rewriting, "name")],
            "loss": [(recipe.acting, "loss")],
            "advantage": [("feedback", "advantage")],
        }
        for part, (section, key) in [(p, place) for p in places for place in places[p]]:
            in_role = part not in ("domain", "advantage")
            settings: Any = recipe.roles[section] if in_role else getattr(recipe, section)
            given: Any = getattr(self, part)
            current = getattr(settings, key)
            if given is not None:
                changes: dict[str, Any] = {key: object_name(given)}
                changes |= {"options": {}} if "options" in type(settings).model_fields else {}
                if isinstance(current, FunctionConfig):
                    changes = {key: type(current).model_validate(given)}
                settings = settings.model_copy(update=changes)
                if in_role:
                    recipe = recipe.with_role(section, settings)
                else:
                    recipe = recipe.model_copy(update={section: settings})
            elif is_object(name := getattr(current, "name", current)):
                section = role_key(section) if in_role else section
                raise RecipeError(
                    f"{section}.{key}: {name} was handed over by a program: hand it over again, as "
                    f"in rlanything.Trainer.resume(RUN, {part}=...)"
                )
        return recipe


NO_PARTS = Parts()
"""Everything is as the recipe names it."""
