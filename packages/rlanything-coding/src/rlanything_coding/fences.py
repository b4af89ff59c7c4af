"""Fenced Markdown blocks of a text, found in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

FENCE = "```"
_FENCE = re.compile(rf"^[ \t]*{FENCE}([^`\n]*)$", re.MULTILINE)


class Block(NamedTuple):
    """A block between two fences."""

    label: str
    """First word after the opening fence, in lower case; "" for a bare fence."""
    text: str
    """Its lines, without the last newline."""
    closed: bool


def blocks(text: str) -> Iterator[Block]:
    """Yields the blocks in the order in which they begin.

    A fence is a line that begins with three backticks and has no others. A labelled fence opens a
    block even inside another one: language models forget closing fences more often than they nest
    blocks."""
    text = text.replace("\r\n", "\n")
    opened: tuple[str, int] | None = None
    for fence in _FENCE.finditer(text):
        words = fence[1].split(maxsplit=1)
        label = words[0].lower() if words else ""
        if opened is not None:
            yield Block(opened[0], text[opened[1] : fence.start() - 1], closed=not label)
        opened = (label, fence.end() + 1) if opened is None or label else None
    if opened is not None:
        yield Block(opened[0], text[opened[1] :], closed=False)
