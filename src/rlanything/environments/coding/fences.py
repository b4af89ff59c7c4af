"""The fenced blocks of a text in Markdown, found in one pass over its lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

FENCE = "```"


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between two fences."""

    label: str
    """The first word after the opening fence, in lower case; "" for a bare one."""
    text: str
    """Its lines, without the last line's end."""
    closed: bool


def blocks(text: str) -> Iterator[Block]:
    """The blocks in the order of their beginnings.

    A fence is a line that begins with three backticks and has no others. A labelled one opens a
    block even inside another: language models forget to close them more often than they quote."""
    label: str | None = None
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        found = _fence(line)
        if found is None:
            lines.append(line)
            continue
        if label is not None:
            yield Block(label, "\n".join(lines), closed=found == "")
        label = found if label is None or found else None
        lines = []
    if label is not None:
        yield Block(label, "\n".join(lines), closed=False)


def _fence(line: str) -> str | None:
    """The label of a line that is a fence; None for any other line."""
    stripped = line.strip(" \t")
    label = stripped.removeprefix(FENCE)
    if not stripped.startswith(FENCE) or "`" in label:
        return None
    words = label.split(maxsplit=1)
    return words[0].lower() if words else ""
