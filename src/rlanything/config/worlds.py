"""The domain of a recipe: one world, or several that share a policy, a judge and an adapter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rlanything.algorithm.feedback import Window
from rlanything.config.engines import ConfigSection
from rlanything.config.problems import RecipeError
from rlanything.config.roles import Share
from rlanything.config.sections import File
from rlanything.config.trust import (
    CODE,
    SECRET,
    CodeName,
    Trust,
    check_key,
    is_code,
    mappings_in,
    trust_of,
)
from rlanything.config.yaml import dotted
from rlanything.plugins import PluginError, load_plugin

SEVERAL = "several"
"""Name of the domain that holds the worlds of a recipe's list `domains`."""
LABEL = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class PlayedDomain(ConfigSection):
    """A domain by its name, with its options."""

    name: CodeName
    """A registered domain (`alfworld`) or `module:Class`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the domain, which checks them."""

    @field_validator("options")
    @classmethod
    def _trusted(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Refuses code, commands and secrets that are not allowed, by the types of the domain's
        options. Other errors in them are reported when the domain is built, except in the list
        `domains`, which is a part of the recipe."""
        for place, endpoint in mappings_in(options):
            check_key(dotted([*place, "key_variable"]), endpoint, info)
        name = info.data.get("name")
        try:
            _validate_options(name, options, trust_of(info))
        except ValidationError as error:
            if name == SEVERAL or {CODE, SECRET} & {each["type"] for each in error.errors()}:
                raise
        return options

    @property
    def code(self) -> list[str]:
        """Every `module:name` and command that it names."""
        trust = Trust(code=True, secrets=True)
        with suppress(ValidationError):
            _validate_options(self.name, self.options, trust)
        own = [self.name] if is_code(self.name) else []
        return [*own, *dict.fromkeys(trust.asked)]


class DomainConfig(PlayedDomain):
    module_folder: File | None = None
    """Folder with the module of `module:Class`; set automatically if that is next to the recipe.
    Searched last, and only if all code that the recipe names may be imported."""

    @property
    def worlds(self) -> dict[str, WorldConfig]:
        """The worlds of a recipe with several, by label; empty for one."""
        if self.name != SEVERAL:
            return {}
        listed = self.options.get("worlds", [])
        worlds = _WORLDS.validate_python(listed, context=Trust(code=True, secrets=True))
        return {world.called: world for world in worlds}

    @property
    def names(self) -> list[str]:
        """The names of its domains: one, or that of each world."""
        return [*domains_by_label(self.name, self.options).values()]


class WorldConfig(PlayedDomain):
    label: str | None = None
    """Name of the world in task ids, splits and metrics; defaults to the domain's name, or to that
    of its class in small letters."""
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """Share of the tasks that are of this world, relative to the other weights; 0: the world is
    evaluated, not trained on."""
    alpha_low: Share | None = None
    """As `curriculum.alpha_low`, for this world; None: the same."""
    alpha_high: Share | None = None
    """As `curriculum.alpha_high`, for this world; None: the same."""
    policy_window: Window | None = None
    """As `feedback.policy_window`, for this world; None: the same."""

    @property
    def called(self) -> str:
        """The label, given or derived."""
        return _label(self.name, self.label)

    @model_validator(mode="after")
    def _can_be_called(self) -> WorldConfig:
        if not LABEL.fullmatch(self.called):
            raise ValueError(
                f"label {self.called!r:.80}: give one of small letters, digits, _ and -, which "
                "begins with a letter"
            )
        low, high = self.policy_window or (0, 1)
        if not 0 <= low <= high <= 1:
            raise ValueError("policy_window: give low <= high, both in [0, 1]")
        return self


_WORLDS = TypeAdapter(list[WorldConfig])


def domains_by_label(name: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Returns the names of the domains that a domain and its options stand for, that of each world
    or its own, by the label that its tasks begin with where there are several worlds."""
    worlds = options.get("worlds", ()) if name == SEVERAL else ()
    return {
        _label(world["name"], world.get("label")): world["name"]
        for world in worlds or ({"name": name},)
    }


def _label(name: str, given: str | None) -> str:
    return given or re.split(r"[:.]", name)[-1].lower()


def as_one_domain(data: dict[str, Any], place: str) -> dict[str, Any]:
    """Returns a recipe's data with its list `domains`, if it has one, as the options of the domain
    `several`. Raises `RecipeError` for a recipe with both forms; `place` is the recipe's."""
    if "domains" not in data:
        return data
    if data.get("domain") is not None:
        raise RecipeError(f"{place}: domain is one world, domains are several: keep one of them")
    rest = {key: value for key, value in data.items() if key != "domains"}
    return {**rest, "domain": {"name": SEVERAL, "options": {"worlds": data["domains"]}}}


def options_model(domain: object) -> type[BaseModel] | None:
    """Returns the `Options` that the class of a named domain declares; None without any, or if the
    domain cannot be loaded, which is reported when it is built."""
    try:
        model = getattr(load_plugin("domain", str(domain)), "Options", None)
    except PluginError:
        return None
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def _validate_options(domain: object, options: Mapping[str, Any], trust: Trust) -> None:
    """Validates only the options that the domain declares: an unknown key would stop pydantic
    before it reads the others. Raises `ValidationError`."""
    if options and (model := options_model(domain)):
        known = {key: value for key, value in options.items() if key in model.model_fields}
        model.model_validate(known, context=trust)
