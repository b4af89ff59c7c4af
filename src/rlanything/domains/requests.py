"""Chats that an agent of its own sends to the policy, and the policy's replies to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlanything.records import Completion, Messages


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A chat that the policy answers as it stands."""

    id: str
    """Made from what is asked: an episode that is played again asks the same."""
    messages: Messages
    tools: tuple[Mapping[str, Any], ...] = ()
    """The functions that may be called, each with `name`, `description` and `parameters`, as
    OpenAI's API describes them."""
    follows: int | None = None
    """The step that these messages go on from: they repeat its own and its answer. None: they
    begin anew."""
    thread: int = 0
    """The number of its conversation among those of the episode."""
    max_tokens: int | None = None
    """Limit of the answer, where that is lower than the policy's own."""
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these."""
    images: Mapping[str, bytes] = field(default_factory=dict)
    """The files that the messages name."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the model's chat template, such as `enable_thinking`."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The policy's reply to a request."""

    request: str
    """The request's id."""
    completion: Completion | None
    """None: it was refused."""
    refused: str = ""
    """Why; "" for an answer."""


class TooLong(str):
    """Why a request was refused that does not fit the model's context: agents then shorten it."""


class RequestsRefused(Exception):
    """Some requests cannot be answered, and nothing was generated for those beside them."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        """`reasons`: by the place of the request among those asked together."""
        super().__init__(dict(reasons))
        self.reasons = dict(reasons)
