"""Reads what servers reply, which may be anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

MOST_STRUCTURE = 2**16
"""Most bytes of a JSON reply that are no text: a few of them can take a hundred in memory."""
MOST_QUOTED = 300
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class BadReply(Exception):
    """A reply of no use: a few words that say what the server did."""

    def __init__(self, what: str, asked_seconds: float | None = None) -> None:
        super().__init__(what)
        self.asked_seconds = asked_seconds
        """How long it asks to wait before another try."""


def json_object(raw: bytes) -> dict[str, Any]:
    """Returns the JSON object that a reply holds. Raises `BadReply`."""
    try:
        text = raw.decode("utf-8", "surrogatepass")
        if len(_STRING.sub("", text)) > MOST_STRUCTURE:
            raise BadReply("sent JSON of too many parts")
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise BadReply("sent no JSON") from None
    if not isinstance(value, dict):
        raise BadReply("sent no JSON object")
    return value


def number(value: object, most: float) -> float:
    """Returns a number from 0 to `most`; 0 for None. Raises `BadReply` for all else."""
    if value is None:
        return 0
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    raise BadReply("sent a number that cannot be")


def quoted(said: object, hide: Callable[[str], bool] = lambda word: False) -> str:
    """Returns the beginning of what a server said, in one line of printable characters; empty for
    what is no text. Of words to `hide`, dots show that they were there."""
    line = ""
    for word in said.split() if isinstance(said, str) else ():
        shown = "[...]" if hide(word) else word[:MOST_QUOTED]
        line += f"{' ' if line else ''}{shown}"
        if len(line) > MOST_QUOTED:
            break
    return "".join(c if c.isprintable() else "?" for c in line[:MOST_QUOTED])


def place(address: str) -> str:
    """Returns host and port of an address, without user and password; empty if there are none."""
    try:
        return urlsplit(address).netloc.rpartition("@")[2]
    except ValueError:
        return ""
