"""A request to the policy, in no particular dialect, and its refusal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rlanything.domains.base import Image
from rlanything.domains.requests import ModelRequest, TooLong
from rlanything.records import Messages

PROMPT = "(prompt)"
"""Stands for the field with the conversation, whose name depends on the dialect."""
TOO_LONG = "context_length_exceeded"
"""Code of the refusal of a chat that is longer than the model's context."""
_MESSAGE_BYTES = 16
"""Size of a message without its texts, so that empty messages count too."""


class Denial(Exception):
    """A refused request; the message is one line with the remedy."""

    def __init__(
        self,
        message: str,
        param: str | None = None,
        status: int = 400,
        code: str = "invalid_value",
    ) -> None:
        """`param`: the invalid part of the request. `code`: machine-readable, OpenAI's own code if
        it has one."""
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status
        self.code = code


def misplaced(place: str, fault: str) -> Denial:
    """Returns the refusal of a part of a request; its message begins with the place."""
    return Denial(f"{place}: {fault}", place)


def refusal(reason: str) -> Denial:
    """Returns the policy's refusal of a request."""
    code = TOO_LONG if isinstance(reason, TooLong) else "invalid_prompt"
    return Denial(reason, PROMPT, code=code)


@dataclass(frozen=True)
class Asked:
    """A request to the policy."""

    model: str
    messages: Messages
    tools: tuple[Mapping[str, Any], ...] = ()
    """Functions that may be called, each with `name`, `description` and `parameters`."""
    choices: tuple[str, ...] | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    answers: int = 1
    """Number of answers (`n`)."""
    stream: bool = False
    logprobs: bool = False
    one_call: bool = False
    """Whether an answer may contain at most one call."""
    images: tuple[Image, ...] = ()
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    count_only: bool = False
    """Whether only the tokens of its prompt are counted."""
    ignored: tuple[str, ...] = ()
    """Fields of the request that have no effect."""
    kept: Mapping[str, Any] | None = None
    """The request itself if later ones may refer to its reply; otherwise None."""
    own: Any = None
    """Data with which the dialect writes the reply; it has no influence on the answer."""

    @cached_property
    def digest(self) -> str:
        """Hash of everything that determines the answer."""
        parts = (self.messages, self.tools, self.choices, self.max_tokens, self.stop)
        decisive = (*parts, self.chat_template_kwargs, self.count_only)
        return hashlib.sha256(repr(decisive).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def tool_names(self) -> list[str]:
        return [str(tool["name"]) for tool in self.tools]

    def request(self, name: str, follows: int | None = None, thread: int = 0) -> ModelRequest:
        """Returns this request as the policy gets it, with its id and its place."""
        return ModelRequest(
            name,
            self.messages,
            self.tools,
            follows,
            thread,
            self.max_tokens,
            self.stop,
            {image.name: image.data for image in self.images},
            self.chat_template_kwargs,
            self.count_only,
        )

    @property
    def size(self) -> int:
        """Approximate size in bytes, including what the request refers to."""
        texts = sum(
            _MESSAGE_BYTES
            + len(message.content)
            + len(message.thought)
            + sum(len(call.arguments) for call in message.calls)
            for message in self.messages
        )
        return texts + sum(len(image.data) for image in self.images)
