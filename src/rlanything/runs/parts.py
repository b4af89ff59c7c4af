"""Parts of a run that a program passes as objects, in place of the recipe's."""

from __future__ import annotations

from collections.abc import Mapping
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
"""Protocols of the objects for each part; a loss and an advantage are functions."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Objects for some parts of a run; None: the recipe's."""

    domain: Domain | None = None
    judge: Judge | Mapping[str, Judge] | None = None
    """The only judge, or judges by role name."""
    adapter: Adapter | None = None
    loss: Loss | None = None
    """The policy's loss; a judge's is named by `judge.loss`."""
    advantage: Advantage | None = None

    def __post_init__(self) -> None:
        """Raises `RecipeError` for a part of the wrong type."""
        for part in fields(self):
            given: Any = getattr(self, part.name)
            objects = [*given.values()] if isinstance(given, Mapping) else [given]
            for one in objects:
                if one is not None:
                    _check(part.name, one)

    def judge_of(self, role: str) -> Judge | None:
        """Returns the object that judges in a role; None: the recipe's judge."""
        return self.judge.get(role) if isinstance(self.judge, Mapping) else self.judge

    def named_in(self, recipe: Recipe) -> Recipe:
        """Returns the recipe with `object(...)` as the name of each part given here, to mark what
        the recipe alone cannot rebuild.

        Raises `RecipeError` if a part that the recipe marks as an object is not given."""
        self._check_judges(recipe)
        places: list[tuple[str, str, str, Any]] = [
            ("domain", "domain", "name", self.domain),
            *(("judge", name, "name", self.judge_of(name)) for name in recipe.judges),
            ("adapter", recipe.rewriting, "name", self.adapter),
            ("loss", recipe.acting, "loss", self.loss),
            ("advantage", "feedback", "advantage", self.advantage),
        ]
        for part, section, key, given in places:
            in_role = part not in ("domain", "advantage")
            settings: Any = recipe.roles[section] if in_role else getattr(recipe, section)
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

    def _check_judges(self, recipe: Recipe) -> None:
        """Raises `RecipeError` for judges without a role in the recipe."""
        names = ", ".join(recipe.judges)
        if isinstance(self.judge, Mapping):
            if strange := [name for name in self.judge if name not in recipe.judges]:
                raise RecipeError(f"judge: no role {strange[0]!r} scores; name one of {names}")
        elif self.judge is not None and len(recipe.judges) > 1:
            raise RecipeError(
                f"judge: this recipe has several ({names}): hand over judge={{name: object}}"
            )


def _check(part: str, given: Any) -> None:
    """Raises `RecipeError` for an object that cannot replace a part."""
    place = f"{part}: {object_name(given)}"
    if isinstance(given, type):
        raise RecipeError(f"{place} is a class: hand over an object of it")
    if part not in PROTOCOLS:
        lacking = "" if callable(given) else "__call__"
    else:
        lacking = missing_members(given, PROTOCOLS[part])
    if lacking:
        remedy = "hand over an object that has them"
        if part == "judge":
            remedy += ", or a function as rlanything.FunctionJudge(function)"
        raise RecipeError(f"{place} is no {part}, it lacks {lacking}: {remedy}")


NO_PARTS = Parts()
"""All parts are the recipe's."""
