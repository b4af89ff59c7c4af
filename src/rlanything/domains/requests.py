"""Requests of external agents to the policy, and the policy's replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlanything.records import Completion, Messages


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A chat that the policy answers as given."""

    id: str
    """Hash of the content: a replayed episode sends the same id."""
    messages: Messages
    tools: tuple[Mapping[str, Any], ...] = ()
    """The functions that may be called, each with `name`, `description` and `parameters`, in the
    format of OpenAI's API."""
    follows: int | None = None
    """The step that these messages continue: they repeat its messages and its answer. None: a new
    conversation."""
    thread: int = 0
    """Number of its conversation within the episode."""
    max_tokens: int | None = None
    """Limit of the answer, if lower than the policy's."""
    stop: tuple[str, ...] = ()
    """Stop strings; the answer ends before the first of them."""
    images: Mapping[str, bytes] = field(default_factory=dict)
    """Files that the messages refer to, by name."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Additional variables of the model's chat template, such as `enable_thinking`."""
    count_only: bool = False
    """Whether the prompt's tokens are only counted. The reply is a refusal for `PromptTokens`."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The policy's reply to a request."""

    request: str
    """The id of the request."""
    completion: Completion | None
    """The answer; None if the request was refused."""
    refused: str = ""
    """The reason; "" for an answer."""


class TooLong(str):
    """Reason for refusing a request that exceeds the model's context: agents then shorten it."""


class PromptTokens(str):
    """Number of a prompt's tokens in digits, as the reason for not answering it."""


class RequestsRefused(Exception):
    """Some requests cannot be answered; nothing was generated for the others either."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        """`reasons`: by the index of the request in the batch."""
        super().__init__(dict(reasons))
        self.reasons = dict(reasons)

    def within(self, places: Sequence[int]) -> RequestsRefused:
        """Returns the refusal for a larger batch, with this batch's requests at `places` in it."""
        return RequestsRefused({places[i]: reason for i, reason in self.reasons.items()})
