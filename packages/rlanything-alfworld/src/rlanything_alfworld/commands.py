"""Admissible commands: how an observation lists them, and how a response names one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from rlanything.domains.text import action_after

Listing: TypeAlias = Literal["none", "list", "numbered"]
LISTINGS: tuple[Listing, ...] = get_args(Listing)

ACTION_MARKER = ">"
"""Separates thought from action in a response: `I need a mug. > go to shelf 1`."""

ANSWER_FORMS: Mapping[Listing, str] = {
    "none": f"`{ACTION_MARKER} ` and one action",
    "list": r"`\boxed{command}`",
    "numbered": r"`\boxed{number}`",
}
"""How a response is to end, in words for prompts and environment."""

# No sentence of the game holds an empty line, and nothing that a policy writes is repeated in one.
_HEADING = "\n\nPossible commands:\n"
_BOX = re.compile(r"\\boxed\{([^{}]*)\}")


def with_commands(text: str, commands: Sequence[str], listing: Listing) -> str:
    """Returns an observation with the commands possible after it, one a line, numbered from 1 if
    asked. They are a part of it, so that a stored step holds all that its response answered."""
    if listing == "none":
        return text
    lines = commands if listing == "list" else [f"{i}. {c}" for i, c in enumerate(commands, 1)]
    return text + _HEADING + "\n".join(lines)


def without_commands(observation: str) -> tuple[str, str]:
    """Returns what the game said, and the lines of the commands; these are empty where none were
    listed."""
    text, _, lines = observation.partition(_HEADING)
    return text, lines


def find_action(response: str) -> str | None:
    """Returns the first line after the last marker; None where there is no marker or nothing after
    it."""
    return action_after(ACTION_MARKER, response)


def find_command(response: str, commands: Sequence[str], listing: Listing) -> str | None:
    r"""Returns what a response says to do; None where it says nothing.

    Where commands are listed that is the content of the last `\boxed{...}`, a number standing for
    its command; a command after the marker also counts, if it comes after any box. What is returned
    need not be possible: a number that is not in the list stays a number."""
    marked, start = find_action(response), response.rfind("\\boxed")
    said_last = marked in commands and response.rfind(ACTION_MARKER) > start
    if listing == "none" or start < 0 or said_last:
        return marked
    box = _BOX.match(response, start)
    named = box[1].strip() if box else ""
    numbers = {str(i): command for i, command in enumerate(commands, 1)}
    return (numbers.get(named, named) if listing == "numbered" else named) or None
