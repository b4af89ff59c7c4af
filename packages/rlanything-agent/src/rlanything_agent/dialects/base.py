"""A dialect: how an API writes requests, answers and errors."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from rlanything.domains.thoughts import bare_thought
from rlanything_agent.asked import PROMPT, TOO_LONG, Asked, Denial
from rlanything_agent.conversation import PolicyAnswer

Body = dict[str, Any]
Sliced = TypeVar("Sliced", str, list[Body])
_MOST_NAMES, _NAME_CHARACTERS = 32, 100
"""Largest number of field names in a header, and the longest name in characters."""
_PIECE = 128
"""Characters (tokens, of log-probs) in an event of a stream. Programs show answers as they grow,
and some clients refuse long lines."""
_EPOCH = "1970-01-01T00:00:00Z"


class Dialect(ABC):
    """An API as the program of one episode speaks it."""

    path: ClassVar[str]
    """Path at which answers are asked for."""
    counting_path: ClassVar[str | None] = None
    """Path at which the tokens of a prompt are counted; None: this API has none."""
    prompt: ClassVar[str]
    """Name of the field with the conversation."""
    headers: ClassVar[tuple[str, ...]] = ()
    """Request headers that ask for features, all without effect."""
    sign_of_life: ClassVar[bytes] = b": keep-alive\n\n"
    """Sent in a stream that has no answer yet."""
    renamed: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """This API's names of fields that the policy did not see."""

    @abstractmethod
    def read(self, body: Any, images: bool, count_only: bool = False) -> Asked:
        """Returns the parsed request. `images`: whether the policy sees images. Raises `Denial`."""

    @abstractmethod
    def reply(self, asked: Asked, answers: Sequence[PolicyAnswer]) -> Body:
        """Returns the body of a reply."""

    @abstractmethod
    def events(self, asked: Asked, answers: Sequence[PolicyAnswer]) -> bytes:
        """Returns the events of a streamed reply, in pieces. Each answer is sent once it is
        complete."""

    @abstractmethod
    def failed(self, asked: Asked, refusal: Denial) -> bytes:
        """Returns the events of a stream that has begun and is refused after all."""

    def count(self, tokens: int) -> Body:
        """Returns the body of a reply with the number of tokens of a prompt."""
        raise NotImplementedError

    @classmethod
    def error(cls, refusal: Denial) -> Body:
        """Returns the body of an error, in the form of OpenAI's API."""
        kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
        long = refusal.code == TOO_LONG  # the wording that clients look for
        said = "This model's maximum context length is exceeded: " if long else ""
        return {
            "error": {
                "message": f"{said}{refusal.message}",
                "type": "requests" if refusal.status == 429 else kind,
                "param": cls.prompt if refusal.param == PROMPT else refusal.param,
                "code": refusal.code,
            }
        }

    def ignored(self, asked: Asked, answers: Sequence[PolicyAnswer], headers: Iterable[str]) -> str:
        """Returns what had no effect, in the form of a header value. `headers`: names of the
        request's headers."""
        unread = {name for answer in answers for name in answer.completion.unread}
        named = {self.renamed.get(name, name) for name in unread}
        names = sorted({*asked.ignored, *named, *(set(headers) & {*self.headers})})
        # Some of the names come from the program.
        short = (name[:_NAME_CHARACTERS] for name in names[:_MOST_NAMES])
        said = [quote(name, safe=".[]_-", errors="replace") for name in short]
        return ", ".join([*said, "..."] if len(names) > _MOST_NAMES else said)


def model_list(names: Sequence[str]) -> Body:
    """Returns a list of models that clients of both OpenAI and Anthropic can read."""
    models = [
        {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "rlanything",
            "type": "model",
            "display_name": name,
            "created_at": _EPOCH,
        }
        for name in names
    ]
    ends = {"first_id": names[0], "last_id": names[-1], "has_more": False}
    return {"object": "list", "data": models, **ends}


def thought_of(answer: PolicyAnswer) -> str:
    """Returns the reasoning before an answer, without its marks."""
    completion = answer.completion
    return bare_thought(completion.text[: completion.answer_at])


def token_logprobs(answer: PolicyAnswer, missing: Any) -> list[Body]:
    """Returns the log-probs of the sampled tokens. Tokens are named by their ids, as vLLM does on
    request: their texts need not concatenate to the answer's text. `missing`: value of `bytes`."""
    sampled = zip(answer.completion.token_ids, answer.completion.logprobs, strict=True)
    return [
        {"token": f"token_id:{token}", "logprob": logprob, "bytes": missing, "top_logprobs": []}
        for token, logprob in sampled
    ]


def pieces(whole: Sliced) -> list[Sliced]:
    """Returns a text or a list in pieces for the events of a stream; at least one."""
    return [whole[i : i + _PIECE] for i in range(0, len(whole), _PIECE)] or [whole]


def named_events(events: Iterable[Body]) -> bytes:
    """Returns server-sent events that are named by their `type`."""
    said = [(event["type"], json.dumps(event)) for event in events]
    return "".join(f"event: {name}\ndata: {data}\n\n" for name, data in said).encode()
