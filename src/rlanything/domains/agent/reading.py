"""A request's body as what it asks for; what cannot be done is refused in OpenAI's form."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlanything.domains.agent.tool_calls import call_of
from rlanything.domains.base import Image
from rlanything.records import ChatRole, Message, Messages, ToolCall

IGNORED = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty"),
        *("frequency_penalty", "repetition_penalty", "reasoning_effort", "verbosity", "user"),
        *("metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
    }
)
"""Taken, and of no effect: how answers are sampled is the run's to say, as what is sampled
another way would train a policy that nobody asked."""
_HONOURED = frozenset(
    {
        *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens"),
        *("max_completion_tokens", "stop", "n", "stream", "stream_options", "logprobs"),
        *("top_logprobs", "response_format", "structured_outputs"),
    }
)
_ROLES: Mapping[str, ChatRole] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
MOST_ANSWERS = 128
MOST_PIXELS = 2**25
"""Largest accepted image in pixels, the engines' own limit; guards against decompression bombs."""
_PNG = b"\x89PNG\r\n\x1a\n"


class Denial(Exception):
    """A request that is not answered; the message is one line with the remedy."""

    def __init__(
        self,
        message: str,
        param: str | None = None,
        status: int = 400,
        code: str = "invalid_value",
    ) -> None:
        """`param`: the part of the request at fault; `code`: machine-readable, OpenAI's where it
        has one."""
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
    """n"""
    stream: bool = False
    stream_usage: bool = False
    logprobs: bool = False
    one_call: bool = False
    """Whether an answer may have no more than one call."""
    images: tuple[Image, ...] = ()
    ignored: tuple[str, ...] = ()
    """What of the request has no effect."""

    @cached_property
    def digest(self) -> str:
        """A name made of all that decides the answer."""
        parts = (self.messages, self.tools, self.choices, self.max_tokens, self.stop)
        return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_request(body: Any, images: bool) -> Asked:
    """Returns what a request's body asks for. `images`: whether the policy is shown any. Raises
    `Denial`."""
    if not isinstance(body, Mapping):
        raise Denial("the body must be a JSON object")
    given = {name: value for name, value in body.items() if value is not None}
    for name in given.keys() - _HONOURED - IGNORED:
        raise Denial(f"{name} is not supported: leave it out", name, code="unsupported_parameter")
    _refuse_formats(given)
    pictures: list[Image] = []
    tools, one = _tools(given)
    return Asked(
        model=_text(given, "model"),
        messages=_messages(given.get("messages"), pictures if images else None),
        tools=tools,
        choices=_choices(given),
        max_tokens=_count(given, "max_completion_tokens") or _count(given, "max_tokens"),
        stop=_stop(given.get("stop", ())),
        answers=_count(given, "n", MOST_ANSWERS) or 1,
        stream=_flag(given, "stream"),
        stream_usage=_flag(given.get("stream_options", {}), "include_usage"),
        logprobs=_flag(given, "logprobs"),
        one_call=one,
        images=tuple(pictures),
        ignored=tuple(sorted(given.keys() & IGNORED)),
    )


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


def _tools(given: Mapping[str, Any]) -> tuple[tuple[Mapping[str, Any], ...], bool]:
    """Returns the functions that may be called, and whether only one of them."""
    tools: list[Mapping[str, Any]] = []
    listed = given.get("tools", [])
    for tool in listed if isinstance(listed, list) else [None]:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise Denial("tools must be a list of functions, each with a name", "tools")
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
    elif choice not in ("auto", "required"):
        raise Denial("tool_choice must be auto, none, required or a function", "tool_choice")
    one = "parallel_tool_calls" in given and not _flag(given, "parallel_tool_calls")
    return tuple(tools), one


def _messages(value: Any, pictures: list[Image] | None) -> Messages:
    if not isinstance(value, list) or not value:
        raise Denial("messages must be a list that is not empty", "messages")
    return tuple(_message(i, message, pictures) for i, message in enumerate(value))


def _message(number: int, value: Any, pictures: list[Image] | None) -> Message:
    place = f"messages[{number}]"
    role = value.get("role") if isinstance(value, Mapping) else None
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(_ROLES)
        raise Denial(f"{place}: role must be one of {known}", place)
    if value.get("function_call"):
        raise Denial(f"{place}: function_call is not supported: send tool_calls", place)
    text, images = _content(place, value.get("content"), pictures)
    called = value.get("tool_calls") or ()
    if not isinstance(called, Sequence) or isinstance(called, str):
        raise Denial(f"{place}: tool_calls must be a list", place)
    calls = tuple(_call(place, call) for call in called)
    return Message(_ROLES[role], text, images, calls)


def _content(place: str, value: Any, pictures: list[Image] | None) -> tuple[str, tuple[str, ...]]:
    """Returns the text of a message, and the names of its images."""
    if value is None or isinstance(value, str):
        return value or "", ()
    if not isinstance(value, list) or not all(isinstance(part, Mapping) for part in value):
        raise Denial(f"{place}: content must be a text or a list of parts", place)
    texts, names = list[str](), list[str]()
    for part in value:
        if isinstance(text := part.get("text", part.get("refusal")), str):
            texts.append(text)
        elif part.get("type") == "image_url":
            image = _image(place, part.get("image_url"), pictures)
            names.append(image.name)
        else:
            raise Denial(f"{place}: parts of type {part.get('type')!r} are not supported", place)
    return "\n".join(texts), tuple(names)


def _image(place: str, value: Any, pictures: list[Image] | None) -> Image:
    if pictures is None:
        raise Denial(
            f"{place}: this run's policy is shown text only; set domain.options.images=true for a "
            "model that sees",
            place,
        )
    url = value.get("url", "") if isinstance(value, Mapping) else value
    kind, _, data = str(url).partition(";base64,")
    try:
        image = Image(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        image = Image(b"")
    if kind != "data:image/png" or not _is_png(image.data):
        raise Denial(
            f"{place}: send images as PNG in a URL data:image/png;base64,..., with at most "
            f"{MOST_PIXELS:,} pixels each",
            place,
        )
    pictures.append(image)
    return image


def _is_png(data: bytes) -> bool:
    """Returns whether it is a whole one: a model that is to see it could not say no any more."""
    if not data.startswith(_PNG):
        return False
    try:
        import PIL.Image  # the extra `vision`, without which no policy sees
    except ImportError:
        return True
    try:
        with PIL.Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            if image.width * image.height > MOST_PIXELS:
                return False
            image.load()
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError):
        return False
    return True


def _call(place: str, value: Any) -> ToolCall:
    function = value.get("function") if isinstance(value, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if isinstance(arguments, Mapping):
        arguments = json.dumps(arguments)
    call = (
        call_of(name, arguments) if isinstance(name, str) and isinstance(arguments, str) else None
    )
    if call is None:
        raise Denial(
            f"{place}: each of tool_calls needs a function with a name and arguments that are a "
            "JSON object as text",
            place,
        )
    return call
