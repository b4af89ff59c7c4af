"""Functions of the algorithm as plug-ins: pure functions of one record of inputs, with typed
options.

A loss, an advantage or a reward is a function of `inputs` and optionally of `options`, a pydantic
model named by the parameter's annotation. A recipe writes `NAME`, or `{name: NAME, options:
{...}}`.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache, cached_property, partial
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from rlanything.plugins import PluginError, is_object, load_plugin, object_name

Function = TypeVar("Function", bound=Callable[..., Any])


class Options(BaseModel):
    """Typed settings: unknown keys are errors, `yes` is no number, and instances are frozen."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    short_keys: ClassVar[tuple[str, ...]] = ()
    """Short keys that are read and stored under another name."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, section: Any) -> Any:
        # Checked before pydantic's `extra`, whose message does not list the valid keys.
        for key in section if isinstance(section, dict) else ():
            if key not in cls.model_fields:
                known = ", ".join(sorted([*cls.model_fields, *cls.short_keys])) or "none"
                message = "unknown key; known here: {known}"
                raise PydanticCustomError("unknown_key", message, {"key": key, "known": known})
        return section


def needs(*inputs: str) -> Callable[[Function], Function]:
    """Marks a function that requires these inputs, which may be None in the record."""

    def mark(function: Function) -> Function:
        function.needs = inputs  # pyright: ignore[reportFunctionMemberAccess]
        return function

    return mark


def is_registered(name: str) -> bool:
    """Returns whether an installed package registers a function of this name."""
    return ":" not in name and not is_object(name)


class FunctionConfig(Options):
    """A function, named by a recipe or passed by a program, with its options."""

    kind: ClassVar[str]
    """The kind of plug-in: `loss`, `advantage` or `reward`."""

    name: str
    """A registered name, or `module:function`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the function, whose own model checks them."""
    _given: Callable[..., Any] | None = PrivateAttr(default=None)

    @classmethod
    @cache
    def default(cls) -> Self:
        """Returns the default function of this kind, the same object each time."""
        return cls.model_validate({})

    @model_validator(mode="wrap")
    @classmethod
    def _short_forms(cls, given: Any, make: Callable[[Any], Self]) -> Self:
        """Accepts a name or a function in place of the section. A registered function checks its
        options at once; `module:function` is imported when it is first used."""
        if callable(given) and not isinstance(given, type):
            config = make({"name": object_name(getattr(given, "func", given))})
            config._given = given
        else:
            config = make({"name": given} if isinstance(given, str) else given)
        is_default = config.name == cls.model_fields["name"].default and not config.options
        if is_registered(config.name) and not is_default:
            _ = config.function
        return config

    @cached_property
    def function(self) -> Callable[[Any], Any]:
        """The function with its options, to be called with its inputs. Raises `PluginError` if the
        function does not exist or does not accept the options."""
        function = self._given or load_plugin(self.kind, self.name)
        return with_options(f"{self.kind} {self.name}", function, self.options)

    def same_as(self, other: FunctionConfig) -> bool:
        """Returns whether the other has the same name and, with defaults filled in, the same
        options."""
        if self.name != other.name:
            return False
        one, two = (getattr(config.function, "keywords", {}) for config in (self, other))
        return one == two

    @property
    def needs(self) -> tuple[str, ...]:
        """The inputs that the function requires."""
        return getattr(getattr(self.function, "func", self.function), "needs", ())


def with_options(
    place: str, function: Callable[..., Any], options: Mapping[str, Any]
) -> Callable[[Any], Any]:
    """Returns `function(inputs)` with `options` validated by the model of its parameter `options`.
    Raises `PluginError`, one line that begins with `place`, if they are not valid."""
    if not callable(function) or isinstance(function, type):
        raise PluginError(f"{place!s} is no function: name one that takes its inputs")
    model = _options_model(place, function)
    _check_call(place, function, model is not None)
    known = [] if model is None else sorted(model.model_fields)
    for key in options:
        if key not in known:
            near = get_close_matches(key, known, 1)
            meant = f", did you mean {near[0]}?" if near else ";"
            takes = ", ".join(known) or "none"
            raise PluginError(f"{place}: unknown option {key}{meant} its options are: {takes}")
    if model is None:
        return function
    try:
        return partial(function, options=model.model_validate(dict(options)))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(map(str, problem["loc"])) or "options"
        fault = problem["msg"].removeprefix("Value error, ")
        raise PluginError(
            f"{place}: {key}: {fault[0].lower()}{fault[1:]} (got {reprlib.repr(problem['input'])})"
        ) from error


def _check_call(place: str, function: Callable[..., Any], takes_options: bool) -> None:
    """Raises `PluginError` for a function that cannot be called with its inputs alone."""
    signature = _signature(function)
    try:
        if signature is not None:
            signature.bind(None, **({"options": None} if takes_options else {}))
    except TypeError:
        raise PluginError(
            f"{place} takes {signature}: let it take its inputs, one record, and nothing else but "
            "`options`"
        ) from None


def _options_model(place: str, function: Callable[..., Any]) -> type[BaseModel] | None:
    """Returns the model of a function's options; None if it has no parameter `options`, or has a
    value for it already (`functools.partial`)."""
    signature = _signature(function)
    if isinstance(function, partial) or signature is None or "options" not in signature.parameters:
        return None
    try:
        model = inspect.signature(function, eval_str=True).parameters["options"].annotation
    except Exception:  # evaluating annotations may raise anything
        model = None
    if isinstance(model, type) and issubclass(model, BaseModel):
        return model
    raise PluginError(
        f"{place}: annotate its parameter `options` with a pydantic model of the same module"
    )


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Returns a function's signature; None for one written in C, which has none."""
    try:
        return inspect.signature(function)
    except ValueError:
        return None
