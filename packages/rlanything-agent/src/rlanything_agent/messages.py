"""The messages of a request: every field is read, reported as ignored, or refused."""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlanything.domains.base import Image
from rlanything.domains.calls import call_of
from rlanything.records import ChatRole, Message, Messages, ToolCall

_ROLES: Mapping[str, ChatRole] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_READ: Mapping[str, frozenset[str]] = {
    "assistant": frozenset({"role", "content", "tool_calls", "refusal"}),
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
}
"""Message keys that are read, by role; for other roles these are role and content."""
_REFUSED = {
    "function_call": "send tool_calls",
    "audio": "send its transcript as content",
}
_TEXTS = (None, "text", "input_text", "output_text")
MOST_PIXELS = 2**25
"""Largest accepted image in pixels, the engines' own limit; guards against decompression bombs."""
_PNG = b"\x89PNG\r\n\x1a\n"


class BadMessage(ValueError):
    """A message that cannot be read; one line with its place and the remedy."""

    def __init__(self, place: str, fault: str) -> None:
        super().__init__(f"{place}: {fault}")
        self.place = place


@dataclass(slots=True)
class _Turn:
    """A message as the client sent it."""

    place: str
    message: Message
    ids: Sequence[str] = ()
    """The ids of its calls; "" for none."""
    answers: str = ""
    """Id of the call whose result it is."""


@dataclass(slots=True)
class MessageReader:
    """Reads the messages of a request."""

    images_shown: bool
    """Whether the policy is shown any."""
    images: list[Image] = field(default_factory=list)
    """Images of the messages read so far."""
    ignored: set[str] = field(default_factory=set)
    """Message fields that have no effect."""

    def read(self, listed: Sequence[Any]) -> Messages:
        """Returns a request's messages, with each function result after its call. Raises
        `BadMessage`."""
        return _in_order([self._turn(f"messages[{i}]", each) for i, each in enumerate(listed)])

    def _turn(self, place: str, value: Any) -> _Turn:
        role = value.get("role") if isinstance(value, Mapping) else None
        if not isinstance(role, str) or role not in _ROLES:
            raise BadMessage(place, f"role must be one of {', '.join(_ROLES)}")
        given = {name: member for name, member in value.items() if _says_something(member)}
        for name, remedy in _REFUSED.items():
            if name in given:
                raise BadMessage(place, f"{name} is not supported: {remedy}")
        if "tool_calls" in given and role != "assistant":
            raise BadMessage(place, f"a message of role {role} has no tool_calls: leave them out")
        thoughts = [name for name in _THOUGHTS if name in given] if role == "assistant" else []
        read = _READ.get(role, frozenset({"role", "content"})) | {*thoughts[:1]}
        # Most clients that send both send the same text twice.
        same = {name for name in thoughts[1:] if given[name] == given[thoughts[0]]}
        self._ignore("messages", given.keys() - read - same)
        text, images, thought = self._content(place, given.get("content"), role)
        refusal = _text(place, given, "refusal") if role == "assistant" else ""
        spoken = [_text(place, given, name) for name in thoughts[:1]]
        message = Message(
            _ROLES[role],
            "\n".join(filter(None, (text, refusal))),
            images,
            name=_text(place, given, "name") if role == "tool" else "",
            thought="\n".join(filter(None, (*spoken, thought if thought not in spoken else ""))),
        )
        called = given.get("tool_calls", ())
        if not isinstance(called, Sequence) or isinstance(called, str):
            raise BadMessage(place, "tool_calls must be a list")
        calls = tuple(self._call(place, call) for call in called)
        ids = tuple(_text(place, call, "id") for call in called)
        answers = _text(place, given, "tool_call_id") if role == "tool" else ""
        return _Turn(place, replace(message, calls=calls), ids, answers)

    def _content(self, place: str, value: Any, role: str) -> tuple[str, tuple[str, ...], str]:
        """Returns a message's text, the names of its images, and its reasoning."""
        if value is None or isinstance(value, str):
            return value or "", (), ""
        if not isinstance(value, list) or not all(isinstance(part, Mapping) for part in value):
            raise BadMessage(place, "content must be a text or a list of parts")
        texts = list[str]()
        names = list[str]()
        thoughts = list[str]()
        for part in value:
            kind = part.get("type")
            thought = _thought(part) if role == "assistant" else None
            if thought is not None:
                thoughts.append(thought)
                read = {"type", "thinking", "reasoning", "text"}
            elif kind == "refusal" and isinstance(part.get("refusal"), str):
                texts.append(part["refusal"])
                read = {"type", "refusal"}
            elif kind in _TEXTS and isinstance(part.get("text"), str):
                texts.append(part["text"])
                read = {"type", "text"}
            elif kind == "image_url":
                names.append(self._image(place, part.get("image_url")).name)
                read = {"type", "image_url"}
                if isinstance(part["image_url"], Mapping):
                    self._ignore("messages.content.image_url", part["image_url"].keys() - {"url"})
            else:
                raise BadMessage(place, f"parts of type {kind!r} are not supported")
            said = {name for name, member in part.items() if _says_something(member)}
            self._ignore("messages.content", said - read)
        return "\n".join(texts), tuple(names), "\n".join(thoughts)

    def _image(self, place: str, value: Any) -> Image:
        if not self.images_shown:
            raise BadMessage(
                place,
                "this run's policy is shown text only; set domain.options.images=true for a "
                "model that sees",
            )
        url = value.get("url", "") if isinstance(value, Mapping) else value
        kind, _, data = str(url).partition(";base64,")
        try:
            image = Image(base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError):
            image = Image(b"")
        if kind != "data:image/png" or not _is_png(image.data):
            raise BadMessage(
                place,
                "send images as PNG in a URL data:image/png;base64,..., with at most "
                f"{MOST_PIXELS:,} pixels each",
            )
        self.images.append(image)
        return image

    def _call(self, place: str, value: Any) -> ToolCall:
        function = value.get("function") if isinstance(value, Mapping) else None
        function = function if isinstance(function, Mapping) else {}
        name, arguments = function.get("name"), function.get("arguments", 0)
        if arguments is None:
            arguments = ""
        elif isinstance(arguments, Mapping):
            arguments = json.dumps(arguments)
        call = None
        if isinstance(name, str) and isinstance(arguments, str):
            call = call_of(name, arguments)
        if call is None:
            raise BadMessage(
                place,
                "each of tool_calls needs a function with a name and arguments that are a "
                "JSON object as text",
            )
        self._ignore("messages.tool_calls", value.keys() - {"id", "type", "function", "index"})
        self._ignore("messages.tool_calls.function", function.keys() - {"name", "arguments"})
        return call

    def _ignore(self, place: str, names: Iterable[Any]) -> None:
        self.ignored |= {f"{place}.{name}" for name in names}


def _in_order(turns: Sequence[_Turn]) -> Messages:
    """Returns messages in which every result follows its call. Raises `BadMessage` for a call
    without a result, and for a result without a call."""
    messages: list[Message] = []
    place = 0
    while place < len(turns):
        turn = turns[place]
        place = place + 1
        if turn.message.role == "tool":
            raise BadMessage(turn.place, _no_call(turn.answers))
        messages.append(turn.message)
        if not turn.message.calls:
            continue
        results: list[_Turn] = []
        while place < len(turns) and turns[place].message.role == "tool":
            results.append(turns[place])
            place += 1
        messages += (result.message for result in _matched(turn, results))
    return tuple(messages)


def _matched(calling: _Turn, results: Sequence[_Turn]) -> list[_Turn]:
    """Returns the results of a message's calls, in the order of the calls. Without ids the results
    are assumed to be in that order."""
    ids = [*calling.ids]
    if not any(result.answers for result in results):
        ids, given = [""] * len(ids), [""] * len(results)
    else:
        given = [result.answers for result in results]
        if twins := {each for each in ids if each and ids.count(each) > 1}:
            raise BadMessage(calling.place, f"calls share the id {min(twins)!r}: give each its own")
    for result in results:
        if result.answers not in ids:
            raise BadMessage(result.place, _no_call(result.answers))
        if result.answers and given.count(result.answers) > 1:
            raise BadMessage(
                result.place, f"the call {result.answers!r} has several results: send one"
            )
    if len(results) > len(ids):
        raise BadMessage(results[len(ids)].place, _no_call(""))
    if len(results) < len(ids):
        # Without ids, the last calls are the ones without results.
        missing = next((i for i, name in enumerate(ids) if name not in given), len(results))
        name = calling.message.calls[missing].name
        raise BadMessage(
            calling.place,
            f"the call of {name!r} (id {calling.ids[missing]!r}) has no result right behind it: "
            "send one message of role tool for each call",
        )
    if not any(given):
        return [*results]
    return [results[given.index(each)] for each in ids]


def _no_call(name: str) -> str:
    named = f"tool_call_id {name!r} is the id of no call" if name else "it is the result of no call"
    return f"{named} in the assistant's message before it: send the calls, or leave it out"


def _says_something(value: Any) -> bool:
    return value is not None and value != "" and value != [] and value != {}


def _text(place: str, given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise BadMessage(place, f"{name} must be a text")
    return value or ""


def _thought(part: Mapping[str, Any]) -> str | None:
    """Returns the reasoning in a message part, or None for a part of another kind."""
    if part.get("type") not in ("thinking", "reasoning"):
        return None
    value = part.get("thinking", part.get("reasoning", part.get("text")))
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        value = "\n".join(str(each.get("text", "")) for each in value)
    return value if isinstance(value, str) else None


def _is_png(data: bytes) -> bool:
    """Returns whether it is a complete PNG: later, a model could no longer refuse it."""
    if not data.startswith(_PNG):
        return False
    try:
        import PIL.Image  # needs the extra `vision`; without it no policy sees images
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
