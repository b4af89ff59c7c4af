"""Settings of an endpoint that speaks the OpenAI chat API."""

from __future__ import annotations

import importlib.util
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
    from rlanything.engines.openai.endpoint import Endpoint


OURS = frozenset(
    {
        *("model", "messages", "seed", "temperature", "max_tokens", "max_completion_tokens"),
        *("n", "stream", "tools", "logprobs"),
    }
)
"""Fields of a request that are made of a role's settings, or would bring back another reply."""


class OpenAIEngineConfig(EngineConfig):
    """An endpoint that speaks the OpenAI chat API. It gives text only, so nothing trains on it."""

    remote: ClassVar[bool] = True

    name: str = "openai"
    """The official client, extra `openai`; `model` is then the endpoint's name of the model."""
    url: str
    """Where the API begins, such as `https://api.openai.com/v1` or `http://127.0.0.1:8000/v1`."""
    key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = (
        "OPENAI_API_KEY"
    )
    """The environment variable that holds the key; null for an endpoint that wants none. A recipe
    alone sends no key: its user names the variable too, as an override or in `RLANYTHING_KEYS`."""
    concurrency: Annotated[int, Field(ge=1)] = 8
    """Requests under way at the same time."""
    retries: Annotated[int, Field(ge=0)] = 5
    """Further tries of a request that met 408, 429, 5xx, a time-out, a dropped connection or an
    answer that cannot be read."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 120.0
    """Limit of one try; the role's own `timeout_seconds` limits all requests asked at once."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of every request, such as `{chat_template_kwargs: {enable_thinking: false}}`
    for a server of vLLM's."""

    @field_validator("extra_body")
    @classmethod
    def _nothing_said_twice(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(OURS.intersection(extra)):
            raise ValueError(f"{taken[0]} is the role's to say: leave it out")
        return extra

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

    @model_validator(mode="after")
    def _key_may_be_sent(self, info: ValidationInfo) -> OpenAIEngineConfig:
        variable = self.key_variable
        if variable is not None and not trust_of(info).allows_key(variable, self.url):
            host = urlsplit(self.url).hostname
            where = {"key": "key_variable", "name": variable, "host": host}
            raise PydanticCustomError(SECRET, "{name} would be sent to {host}", where)
        return self

    def build(self, model: None, setting: EngineSetting) -> Endpoint:
        """Returns the way to the endpoint, at which nothing has been asked yet.

        Raises `EndpointError` without the official client or a key."""
        from rlanything.engines.base import ModelError

        if importlib.util.find_spec("openai") is None:
            raise ModelError(
                f"{setting.role}.engine: openai needs the official client: "
                "pip install 'rlanything[openai]'"
            )
        from rlanything.engines.images import ImageBook
        from rlanything.engines.openai.endpoint import Endpoint

        images = ImageBook(setting.images)
        return Endpoint(setting.role, setting.model, self, setting.timeout_seconds, images)

    def memory(self, workload: EngineWorkload) -> EngineMemory:
        """Returns no parts: the model is not here."""
        del workload
        return EngineMemory(())
