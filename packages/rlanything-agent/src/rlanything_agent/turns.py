"""The turns of a conversation, as every dialect reads them: images, calls, and results in the order
of their calls."""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from rlanything.domains.base import Image
from rlanything.domains.calls import call_of
from rlanything.records import Message, Messages, ToolCall
from rlanything_agent.asked import misplaced

MOST_PIXELS = 2**25
"""Largest accepted image in pixels, the engines' own limit; guards against decompression bombs."""
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, slots=True)
class Turn:
    """A message and the ids that its client gave."""

    place: str
    message: Message
    ids: Sequence[str] = ()
    """The ids of its calls; "" for none."""
    answers: str = ""
    """Id of the call whose result it is."""


@dataclass(frozen=True, slots=True)
class ResultWords:
    """A dialect's words for results of calls."""

    id: str
    """Field with the id of the call."""
    result: str
    """Name of a result."""


@dataclass(slots=True)
class TurnReader:
    """Reads the parts of turns, and collects what they bring besides text."""

    images_shown: bool
    """Whether the policy is shown any."""
    images: list[Image] = field(default_factory=list)
    """Images read so far."""
    ignored: set[str] = field(default_factory=set)
    """Fields that have no effect."""

    def image(self, place: str, kind: Any, data: Any, form: str) -> str:
        """Returns the name of a PNG, of which `data` is the base64. `form`: how to send one."""
        if not self.images_shown:
            raise misplaced(
                place,
                "this run's policy is shown text only; set domain.options.images=true for a "
                "model that sees",
            )
        try:
            image = Image(base64.b64decode(str(data), validate=True))
        except (binascii.Error, ValueError):
            image = Image(b"")
        if kind != "image/png" or not _is_png(image.data):
            raise misplaced(
                place, f"send images as PNG {form}, with at most {MOST_PIXELS:,} pixels each"
            )
        self.images.append(image)
        return image.name

    def image_at(self, place: str, url: Any) -> str:
        """Returns the name of a PNG in a `data:` URL."""
        head, _, data = str(url).partition(";base64,")
        return self.image(
            place, head.removeprefix("data:"), data, "in a URL data:image/png;base64,..."
        )

    def call(self, place: str, name: Any, arguments: Any, form: str) -> ToolCall:
        """Returns a call. `arguments`: a JSON object, or its text; None or "" for none. `form`:
        how to send one."""
        if arguments is None:
            arguments = ""
        elif isinstance(arguments, Mapping):
            arguments = json.dumps(arguments)
        call = None
        if isinstance(name, str) and isinstance(arguments, str):
            call = call_of(name, arguments)
        if call is None:
            raise misplaced(place, form)
        return call

    def unread(self, place: str, value: Mapping[str, Any], read: AbstractSet[str]) -> None:
        """Adds the fields of a part that are not read to those without effect."""
        said = {name for name, member in value.items() if says_something(member)}
        self.ignore(place, said - read)

    def ignore(self, place: str, names: Iterable[Any]) -> None:
        """Adds fields without effect."""
        self.ignored |= {f"{place}.{name}" for name in names}


def in_order(turns: Sequence[Turn], words: ResultWords) -> Messages:
    """Returns messages in which every result follows its call. Raises `Denial` for a call without a
    result, and for a result without a call."""
    messages: list[Message] = []
    place = 0
    while place < len(turns):
        turn = turns[place]
        place = place + 1
        if turn.message.role == "tool":
            raise misplaced(turn.place, _no_call(turn.answers, words))
        messages.append(turn.message)
        if not turn.message.calls:
            continue
        results: list[Turn] = []
        while place < len(turns) and turns[place].message.role == "tool":
            results.append(turns[place])
            place += 1
        messages += (result.message for result in _matched(turn, results, words))
    return tuple(messages)


def _matched(calling: Turn, results: Sequence[Turn], words: ResultWords) -> list[Turn]:
    """Returns the results of a message's calls, in the order of the calls. Without ids the results
    are assumed to be in that order."""
    ids = [*calling.ids]
    if not any(result.answers for result in results):
        ids, given = [""] * len(ids), [""] * len(results)
    else:
        given = [result.answers for result in results]
        if twins := {each for each in ids if each and ids.count(each) > 1}:
            raise misplaced(calling.place, f"calls share the id {min(twins)!r}: give each its own")
    for result in results:
        if result.answers not in ids:
            raise misplaced(result.place, _no_call(result.answers, words))
        if result.answers and given.count(result.answers) > 1:
            raise misplaced(
                result.place, f"the call {result.answers!r} has several results: send one"
            )
    if len(results) > len(ids):
        raise misplaced(results[len(ids)].place, _no_call("", words))
    if len(results) < len(ids):
        # Without ids, the last calls are the ones without results.
        missing = next((i for i, name in enumerate(ids) if name not in given), len(results))
        name = calling.message.calls[missing].name
        raise misplaced(
            calling.place,
            f"the call of {name!r} (id {calling.ids[missing]!r}) has no result right behind it: "
            f"send one {words.result} for each call",
        )
    if not any(given):
        return [*results]
    return [results[given.index(each)] for each in ids]


def _no_call(name: str, words: ResultWords) -> str:
    named = f"{words.id} {name!r} is the id of no call" if name else "it is the result of no call"
    return f"{named} in the assistant's message before it: send the calls, or leave it out"


def says_something(value: Any) -> bool:
    """Returns whether a field's value is other than null or empty."""
    return value is not None and value != "" and value != [] and value != {}


def text_in(place: str, given: Mapping[str, Any], name: str) -> str:
    """Returns a text of a part; "" for none."""
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise misplaced(place, f"{name} must be a text")
    return value or ""


def id_in(place: str, given: Mapping[str, Any], name: str) -> str:
    """Returns an id, which must not be empty."""
    if not (value := text_in(place, given, name)):
        raise misplaced(place, f"{name} must be a text that is not empty")
    return value


def joined(texts: Iterable[str]) -> str:
    """Returns texts below each other, without the empty ones."""
    return "\n".join(filter(None, texts))


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
