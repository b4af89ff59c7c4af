"""Keys that requests to servers carry, and readers of their replies, which are untrusted."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

MOST_STRUCTURE = 2**16
"""Limit of a JSON reply's bytes outside of texts: a few of them can take a hundred in memory."""
MOST_QUOTED = 300
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class BadReply(Exception):
    """A useless reply; the message is a few words about what the server did."""

    def __init__(self, what: str, asked_seconds: float | None = None) -> None:
        super().__init__(what)
        self.asked_seconds = asked_seconds
        """Seconds that the server asks to wait before a retry."""


def key_in(variable: str) -> str | None:
    """Returns the key in an environment variable; None if it holds none that a header can carry,
    which would be quoted in the error about that header."""
    key = os.environ.get(variable, "").strip()
    return key if re.fullmatch("[!-~]+", key) else None


def key_headers(key: str, omitted: Any) -> dict[str, Any]:
    """Returns the headers for OpenAI's client: that of the key, and `omitted` for those that it
    would take from its environment variables, an organisation's or secrets of another gateway."""
    lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    named = [name.strip() for name, colon, _ in (line.partition(":") for line in lines) if colon]
    others = [name for name in named if name.casefold() != "authorization"]
    left_out = dict.fromkeys(("OpenAI-Organization", "OpenAI-Project", *others), omitted)
    return {**left_out, "Authorization": f"Bearer {key}"}


def json_object(raw: bytes) -> dict[str, Any]:
    """Returns the JSON object in a reply. Raises `BadReply`."""
    try:
        text = raw.decode("utf-8", "surrogatepass")
        if len(_STRING.sub("", text)) > MOST_STRUCTURE:
            raise BadReply("sent JSON with too many parts")
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise BadReply("sent invalid JSON") from None
    if not isinstance(value, dict):
        raise BadReply("sent JSON that is not an object")
    return value


def number(value: object, most: float) -> float:
    """Returns a number from 0 to `most`; 0 for None. Raises `BadReply` for anything else."""
    if value is None:
        return 0
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    raise BadReply("sent an impossible number")


def quoted(said: object, hide: Callable[[str], bool] = lambda word: False) -> str:
    """Returns the beginning of a server's text in one line of printable characters; empty for
    anything but a text. Words to `hide` become dots."""
    line = ""
    for word in said.split() if isinstance(said, str) else ():
        shown = "[...]" if hide(word) else word[:MOST_QUOTED]
        line += f"{' ' if line else ''}{shown}"
        if len(line) > MOST_QUOTED:
            break
    return "".join(c if c.isprintable() else "?" for c in line[:MOST_QUOTED])


def place(address: str) -> str:
    """Returns the host and port of an address, without user and password; empty if it has none."""
    try:
        return urlsplit(address).netloc.rpartition("@")[2]
    except ValueError:
        return ""
