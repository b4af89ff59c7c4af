"""Settings of an endpoint with the OpenAI chat API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from rlanything.config.engines import (
    EngineConfig,
    EngineMemory,
    EngineSetting,
    EngineWorkload,
)
from rlanything.config.trust import SECRET, trust_of

if TYPE_CHECKING:
    from rlanything_openai.chat_model import OpenAIChatModel


OURS = frozenset(
    {
        *("model", "messages", "seed", "temperature", "max_tokens", "max_completion_tokens"),
        *("n", "stream", "tools", "logprobs"),
    }
)
"""Fields of a request that come from a role's settings, or would change the reply's format."""


class OpenAIEngineConfig(EngineConfig):
    """An endpoint with the OpenAI chat API. It only gives text, so nothing can train on it."""

    remote: ClassVar[bool] = True
    continuous_batching: ClassVar[bool] = True

    name: str = "openai"
    """The official client (packages/rlanything-openai); `model` is then the endpoint's name of the
    model."""
    url: str
    """Base URL of the API, such as `https://api.openai.com/v1` or `http://127.0.0.1:8000/v1`."""
    key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = (
        "OPENAI_API_KEY"
    )
    """Environment variable with the key; null for an endpoint without one. A recipe alone sends no
    key: its user must name the variable too, as an override or in `RLANYTHING_KEYS`."""
    concurrency: Annotated[int, Field(ge=1)] = 8
    """Number of parallel requests."""
    retries: Annotated[int, Field(ge=0)] = 5
    """Number of retries after 408, 429, 5xx, a timeout, a dropped connection or an unreadable
    answer."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 120.0
    """Time limit of one try; the role's own `timeout_seconds` is the longest time without any
    answer, retries included."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of every request, such as `{chat_template_kwargs: {enable_thinking: false}}`
    for a vLLM server."""

    @field_validator("extra_body")
    @classmethod
    def _nothing_said_twice(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(OURS.intersection(extra)):
            raise ValueError(f"{taken[0]} comes from the role's settings: leave it out")
        return extra

    @field_validator("url")
    @classmethod
    def _plain_address(cls, url: str) -> str:
        # Keys belong in the environment, because recipes are copied into run directories.
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for a bad port
        if not re.fullmatch("https?://[!-~]+", url) or not parts.hostname:
            raise ValueError("give an address such as http://127.0.0.1:8000/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "give scheme, host, port and path only; a key belongs in the environment variable "
                "that key_variable names"
            )
        return url

    @model_validator(mode="after")
    def _key_may_be_sent(self, info: ValidationInfo) -> OpenAIEngineConfig:
        variable = self.key_variable
        if variable is not None and not trust_of(info).allows_key(variable, self.url):
            host = urlsplit(self.url).hostname
            where = {"key": "key_variable", "name": variable, "host": host}
            raise PydanticCustomError(SECRET, "{name} would be sent to {host}", where)
        return self

    def build(self, model: None, setting: EngineSetting) -> OpenAIChatModel:
        """Returns the model behind the endpoint, without sending a request. Raises `EndpointError`
        without a key."""
        from rlanything.engines.images import ImageBook
        from rlanything_openai.chat_model import OpenAIChatModel
        from rlanything_openai.endpoint import Endpoint

        images = ImageBook(setting.images)
        endpoint = Endpoint(setting.role, setting.model, self, setting.timeout_seconds, images)
        return OpenAIChatModel(endpoint)

    def memory(self, workload: EngineWorkload) -> EngineMemory:
        """Returns no parts, because the model runs elsewhere."""
        del workload
        return EngineMemory(())
