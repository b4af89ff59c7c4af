"""The `engine:` section of a recipe: the base class of engine settings, and their lookup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from pydantic import BeforeValidator, SerializeAsAny, ValidationInfo
from pydantic_core import PydanticCustomError

from rlanything.algorithm.options import Options
from rlanything.config.trust import CODE, trust_of
from rlanything.plugins import PluginError, load_plugin, plugin_names


class ConfigSection(Options):
    """A section of a recipe."""


_Section = TypeVar("_Section", bound=ConfigSection)

OnStage: TypeAlias = Callable[[str, float], None]
"""Called when a stage of starting begins, with its description and its time limit in seconds; 0: it
has none but the call's."""


def unseen(stage: str, seconds: float) -> None:
    """Shows no stage."""


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """The settings of a role that its engine needs, in addition to the engine's own."""

    role: str
    """Key of the role it serves (`policy`, `roles.critic`, ...), for messages."""
    model: str
    """The model as named in the recipe."""
    dtype: str
    device: str
    threads: int
    """CPU threads; 0: one per core."""
    timeout_seconds: float
    """Time limit of one batch; with `continuous_batching`, of waiting for the next answer."""
    images: tuple[Path, ...] = ()
    """Folders with the images that it may be shown."""
    on_stage: OnStage = unseen


@dataclass(frozen=True, slots=True)
class EngineWorkload:
    """The work of an engine in an iteration, as plain numbers for `EngineConfig.memory`."""

    parameters: int
    """Number of parameters of the model, adapters included."""
    parameter_bytes: int
    """Bytes of one parameter in the role's compute dtype: 2 or 4."""
    cache_bytes_per_token: int
    """Bytes of one token's keys and values in all layers."""
    pass_bytes_per_token: int
    """Bytes of one token's activations in a layer during prefill."""
    vocabulary: int
    """Number of logits per position."""
    conversations: int
    """Conversations whose prefix persists across steps (KV rows worth keeping)."""
    longest_tokens: int
    """Tokens of the longest conversation: prompt and answers."""
    new_prompt_tokens: int
    """Prompt tokens computed for one step of all conversations, cached prefixes excluded."""
    answers_per_prompt: int


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Bytes that an engine needs in addition to the learner's model."""

    name: str
    bytes: float
    how: str
    """The arithmetic with its numbers."""
    remedy: str
    """A way to make it smaller, shown after "most is NAME:"."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """The memory that an engine needs on its role's device."""

    parts: tuple[MemoryPart, ...]
    freed_between_phases: bool = False
    """Whether all parts are freed while other roles generate and while models learn."""


class EngineConfig(ConfigSection):
    """Base class of an engine's settings, which build the engine.

    A plug-in engine is such a class: an entry point of the group `rlanything.engines`, or
    `name: module:Class` in a recipe."""

    remote: ClassVar[bool] = False
    """Whether it runs elsewhere and answers with text only, so that nothing can train on it."""
    continuous_batching: ClassVar[bool] = False
    """Whether it schedules the requests of a call itself. A judge then asks about many steps in one
    call; else step by step, so that each prompt extends the one before."""

    name: str
    """A registered engine (`embedded`, `vllm`, `openai`) or `module:Class`."""

    def build(self, model: Any, setting: EngineSetting) -> Any:
        """Returns the engine.

        `model` is the role's `LanguageModel`, whose weights may change between calls, and the
        result an `engines.base.Engine`; for a `remote` engine `model` is None, and the result a
        `roles.chat_model.ChatModel`. Raises `ModelError`, or another one-line ValueError, if it
        cannot serve the model."""
        raise NotImplementedError(f"{type(self).__name__} does not define build()")

    def memory(self, workload: EngineWorkload) -> EngineMemory | None:
        """Returns the memory that this engine needs for a workload, for `rlanything plan`.

        Override it in a new engine: a copy of the weights (unless it computes with the learner's),
        its KV cache, and anything else that grows with the workload. None: not known; plans then
        say so and only count the rest."""
        del workload
        return None


def near_name(key: object) -> bool:
    """Whether a key is `name` mistyped."""
    return bool(get_close_matches(str(key), ["name"], cutoff=0.7))


def parse_plugin(kind: str, base: type[ConfigSection], value: Any, info: ValidationInfo) -> Any:
    """Returns the settings of the plug-in of a kind (`engine`, `learner`) that a recipe's section
    names, as its own class, which derives from `base`.

    Raises ValueError for a section without a name, for a plug-in that does not exist or must not be
    imported, and for settings that its class rejects."""
    if not isinstance(value, dict):
        return value  # an object already, or rejected by pydantic
    name = value.get("name")
    if not isinstance(name, str):
        unnamed = {key: value[key] for key in value if key == "name" or near_name(key)}
        if value and not unnamed:
            example = next(iter(plugin_names(kind)), "module:Class")
            raise ValueError(f"missing its name; say which one it is, such as {{name: {example}}}")
        return base.model_validate(unnamed)  # raises the error about the name
    if not trust_of(info).allows_code(name, "name"):
        raise PydanticCustomError(CODE, "{name} would be imported", {"key": "name", "name": name})
    return _class_of(kind, base, name).model_validate(value, context=info.context)


def parse_engine(value: Any, info: ValidationInfo) -> Any:
    """Returns the settings of a role's engine, as `parse_plugin` does."""
    return parse_plugin("engine", EngineConfig, value, info)


@cache
def default_engine() -> EngineConfig:
    """Returns the settings of the engine of a role that names none, the same object each time."""
    return _class_of("engine", EngineConfig, "embedded").model_validate({"name": "embedded"})


def _class_of(kind: str, base: type[_Section], name: str) -> type[_Section]:
    try:
        plugin = load_plugin(kind, name)
    except PluginError as error:
        raise ValueError(str(error)) from error
    if not (isinstance(plugin, type) and issubclass(plugin, base)):
        article = "an" if kind == "engine" else "a"
        raise ValueError(
            f"{name} is not {article} {kind}: name a class that derives from {base.__name__}"
        )
    return plugin


AnyEngineConfig: TypeAlias = Annotated[SerializeAsAny[EngineConfig], BeforeValidator(parse_engine)]
"""The settings of whichever engine is named."""
