"""The `engine:` section of a recipe: the base class of engines' settings, and how one is found."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializeAsAny,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rlanything.config.trust import CODE, trust_of
from rlanything.plugins import PluginError, load_plugin


class ConfigSection(BaseModel):
    """A section of a recipe: unknown keys are errors, `yes` is no number, nothing changes after
    loading."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, section: Any) -> Any:
        # Before `extra` would, because the message of that does not say which keys there are.
        for key in section if isinstance(section, dict) else ():
            if key not in cls.model_fields:
                known = ", ".join(sorted(cls.model_fields)) or "none"
                message = "unknown key; known here: {known}"
                raise PydanticCustomError("unknown_key", message, {"key": key, "known": known})
        return section


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """The settings of a role that its engine needs, beside the engine's own."""

    role: str
    """The role it serves (`policy`, `judge`, ...), for messages."""
    model: str
    """The model as the recipe names it."""
    dtype: str
    device: str
    threads: int
    """CPU threads; 0: as many as there are cores."""
    timeout_seconds: float
    """How long one batch may take."""
    images: tuple[Path, ...] = ()
    """Folders in which images lie that it may be shown."""


@dataclass(frozen=True, slots=True)
class EngineWorkload:
    """The work of an engine in an iteration: plain numbers, for `EngineConfig.memory`."""

    parameters: int
    """Those of the model, its adapters included."""
    parameter_bytes: int
    """Bytes of one parameter in the type that the role computes in: 2 or 4."""
    cache_bytes_per_token: int
    """Keys and values of one token in all layers."""
    pass_bytes_per_token: int
    """Bytes of one token's activations in a layer, while a prompt is computed."""
    vocabulary: int
    """Logits of one answer."""
    conversations: int
    """Whose beginnings are the same from one step to the next: rows that are worth keeping."""
    longest_tokens: int
    """The longest conversation: prompt and answers."""
    new_prompt_tokens: int
    """Computed for one step of all conversations, known beginnings left out."""
    answers_per_prompt: int
    sharded: bool
    """Whether the learner's weights lie in shards on several seats, so that even an engine that
    computes with them needs a whole copy."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Bytes that an engine needs beside the model that the learner holds."""

    name: str
    bytes: float
    how: str
    """The arithmetic, with its numbers in it."""
    remedy: str
    """What makes it smaller, to be read behind "most is NAME:"."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """The memory that an engine needs on its role's device."""

    parts: tuple[MemoryPart, ...]
    freed_between_phases: bool = False
    """Whether all parts are given back while other roles speak and while models learn."""


class EngineConfig(ConfigSection):
    """Base class of an engine's settings, which build the engine.

    An engine is plugged in by such a class: an entry point of the group `rlanything.engines`, or
    `name: module:Class` in a recipe."""

    remote: ClassVar[bool] = False
    """Whether it answers with text alone, from elsewhere: nothing can train on that."""

    name: str
    """A registered engine (`embedded`, `vllm`, `openai`) or `module:Class`."""

    def build(self, model: Any, setting: EngineSetting) -> Any:
        """Returns the engine.

        `model` is the role's `LanguageModel`, whose weights may change between calls, and the
        result an `engines.base.Engine`; for a `remote` engine `model` is None, and the result has
        the methods of `engines.openai.endpoint.Endpoint` (`ask`, `pop_usage`). Raises `ModelError`
        or an error of its own, a ValueError of one line, where it cannot serve."""
        raise NotImplementedError(f"{type(self).__name__} does not define build()")

    def memory(self, workload: EngineWorkload) -> EngineMemory | None:
        """Returns what this engine needs for such work, for `rlanything plan`.

        Override it in a new engine: a copy of the weights (unless it computes with the learner's),
        its cache of keys and values, and anything else that grows with the work. None: not known;
        plans then say so, and count the rest only."""
        del workload
        return None


def near_name(key: object) -> bool:
    """Whether a key is `name` mistyped."""
    return bool(get_close_matches(str(key), ["name"], cutoff=0.7))


def parse_engine(value: Any, info: ValidationInfo) -> Any:
    """Returns the settings of the engine that a recipe's section names, by its own class.

    Raises ValueError for a section without a name, for an engine that is not there or must not be
    imported, and what the class itself finds wrong."""
    if not isinstance(value, dict):
        return value  # an object already, or for pydantic to refuse
    name = value.get("name")
    if not isinstance(name, str):
        unnamed = {key: value[key] for key in value if key == "name" or near_name(key)}
        if value and not unnamed:
            raise ValueError("missing its name; say which one it is, such as {name: embedded}")
        return EngineConfig.model_validate(unnamed)  # which says what is wrong with the name
    if not trust_of(info).allows_code(name, "name"):
        raise PydanticCustomError(CODE, "{name} would be imported", {"key": "name", "name": name})
    return _kind(name).model_validate(value, context=info.context)


def default_engine() -> EngineConfig:
    """Returns the settings of the engine of a role that names none."""
    return _kind("embedded").model_validate({"name": "embedded"})


def _kind(name: str) -> type[EngineConfig]:
    try:
        kind = load_plugin("engine", name)
    except PluginError as error:
        raise ValueError(str(error)) from error
    if not (isinstance(kind, type) and issubclass(kind, EngineConfig)):
        raise ValueError(f"{name} is no engine: name a class that derives from EngineConfig")
    return kind


AnyEngineConfig: TypeAlias = Annotated[SerializeAsAny[EngineConfig], BeforeValidator(parse_engine)]
"""The settings of whichever engine is named."""
