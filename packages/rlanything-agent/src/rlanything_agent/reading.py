"""A request's body as a typed request; unsupported options are refused in OpenAI's format."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rlanything.domains.base import Image
from rlanything.records import Messages
from rlanything_agent.messages import BadMessage, MessageReader

IGNORED = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty"),
        *("frequency_penalty", "repetition_penalty", "reasoning_effort", "verbosity", "user"),
        *("metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
    }
)
"""Accepted, but without effect. The run decides how answers are sampled; differently sampled
answers would train a policy that is never used."""
_HONOURED = frozenset(
    {
        *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens"),
        *("max_completion_tokens", "stop", "n", "stream", "stream_options", "logprobs"),
        *("top_logprobs", "response_format", "structured_outputs", "chat_template_kwargs"),
    }
)
MOST_ANSWERS = 128


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


@dataclass(frozen=True)
class Asked:
    """A request for chat completions."""

    model: str
    messages: Messages
    tools: tuple[Mapping[str, Any], ...] = ()
    choices: tuple[str, ...] | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    answers: int = 1
    """Number of answers (`n`)."""
    stream: bool = False
    stream_usage: bool = False
    logprobs: bool = False
    one_call: bool = False
    """Whether an answer may contain at most one call."""
    images: tuple[Image, ...] = ()
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    """Fields of the request that have no effect."""

    @cached_property
    def digest(self) -> str:
        """Hash of everything that determines the answer."""
        parts = (self.messages, self.tools, self.choices, self.max_tokens, self.stop)
        decisive = (*parts, self.chat_template_kwargs)
        return hashlib.sha256(repr(decisive).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_request(body: Any, images: bool) -> Asked:
    """Returns the parsed request. `images`: whether the policy sees images. Raises `Denial`."""
    if not isinstance(body, Mapping):
        raise Denial("the body must be a JSON object")
    given = {name: value for name, value in body.items() if value is not None}
    for name in given.keys() - _HONOURED - IGNORED:
        raise Denial(f"{name} is not supported: leave it out", name, code="unsupported_parameter")
    _refuse_formats(given)
    reader = MessageReader(images)
    try:
        messages = reader.read(_listed(given))
    except BadMessage as bad:
        raise Denial(str(bad), bad.place) from None
    tools, one = _tools(given, reader.ignored)
    return Asked(
        model=_text(given, "model"),
        messages=messages,
        tools=tools,
        choices=_choices(given),
        max_tokens=_count(given, "max_completion_tokens") or _count(given, "max_tokens"),
        stop=_stop(given.get("stop", ())),
        answers=_count(given, "n", MOST_ANSWERS) or 1,
        stream=_flag(given, "stream"),
        stream_usage=_flag(given.get("stream_options", {}), "include_usage"),
        logprobs=_flag(given, "logprobs"),
        one_call=one,
        images=tuple(reader.images),
        chat_template_kwargs=_template_kwargs(given),
        ignored=tuple(sorted(reader.ignored | (given.keys() & IGNORED))),
    )


def _listed(given: Mapping[str, Any]) -> list[Any]:
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Denial("messages must be a list that is not empty", "messages")
    return messages


def _refuse_formats(given: Mapping[str, Any]) -> None:
    kind = given.get("response_format", {"type": "text"})
    kind = kind.get("type") if isinstance(kind, Mapping) else kind
    if kind != "text":
        raise Denial(
            f"response_format {kind!r} cannot be enforced here, and what is not sampled as the "
            "policy would cannot train it: describe the form in a message, and parse the answer",
            "response_format",
            code="unsupported_value",
        )
    if given.get("top_logprobs"):
        raise Denial("top_logprobs: only sampled tokens have log-probs here", "top_logprobs")


def _text(given: Mapping[str, Any], name: str) -> str:
    if not isinstance(value := given.get(name), str):
        raise Denial(f"{name} must be a text", name)
    return value


def _flag(given: Any, name: str) -> bool:
    if not isinstance(given, Mapping) or not isinstance(value := given.get(name, False), bool):
        raise Denial(f"{name} must be true or false", name)
    return value


def _count(given: Mapping[str, Any], name: str, most: int | None = None) -> int | None:
    value = given.get(name)
    if value is not None and (type(value) is not int or value < 1 or value > (most or value)):
        raise Denial(f"{name} must be a whole number from 1{f' to {most}' if most else ''}", name)
    return value


def _stop(value: Any) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) else value
    if not isinstance(words, Sequence) or not all(isinstance(w, str) and w for w in words):
        raise Denial("stop must be a text or a list of texts, none of them empty", "stop")
    return tuple(words)


def _template_kwargs(given: Mapping[str, Any]) -> Mapping[str, Any]:
    value = given.get("chat_template_kwargs", {})
    if not isinstance(value, Mapping):
        raise Denial("chat_template_kwargs must be a JSON object", "chat_template_kwargs")
    return value


def _choices(given: Mapping[str, Any]) -> tuple[str, ...] | None:
    outputs = given.get("structured_outputs")
    if outputs is None:
        return None
    choices = outputs.get("choice") if isinstance(outputs, Mapping) else None
    if (
        not isinstance(choices, list)
        or not choices
        or not all(isinstance(choice, str) for choice in choices)
        or set(outputs) != {"choice"}
    ):
        raise Denial(
            'structured_outputs must be {"choice": [...]}, a list of the texts to choose among',
            "structured_outputs",
        )
    return tuple(choices)


def _tools(
    given: Mapping[str, Any], ignored: set[str]
) -> tuple[tuple[Mapping[str, Any], ...], bool]:
    """Returns the functions that may be called, and whether at most one call is allowed. Adds the
    fields without effect to `ignored`."""
    tools: list[Mapping[str, Any]] = []
    listed = given.get("tools", [])
    for tool in listed if isinstance(listed, list) else [None]:
        keys: Mapping[str, Any] = tool if isinstance(tool, Mapping) else {}
        function = keys.get("function")
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise Denial("tools must be a list of functions, each with a name", "tools")
        ignored |= {f"tools.{name}" for name in keys.keys() - {"type", "function"}}
        ignored |= {"tools.function.strict"} if function.get("strict") else set()
        tools.append({name: value for name, value in function.items() if name != "strict"})
    choice = given.get("tool_choice", "auto")
    if isinstance(choice, Mapping):
        function = choice.get("function")
        wanted = function.get("name") if isinstance(function, Mapping) else None
        tools = [tool for tool in tools if tool["name"] == wanted]
        if not tools:
            raise Denial(f"tool_choice names {wanted!r}, which is none of tools", "tool_choice")
    elif choice == "none":
        tools = []
    elif choice == "required":
        ignored.add("tool_choice")
    elif choice != "auto":
        raise Denial("tool_choice must be auto, none, required or a function", "tool_choice")
    one = "parallel_tool_calls" in given and not _flag(given, "parallel_tool_calls")
    return tuple(tools), one
