"""Admissible commands: how an observation lists them, and how a response names one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from rlanything.domains.text import action_after

Listing: TypeAlias = Literal["none", "list", "numbered"]

ACTION_MARKER = ">"
"""Separator of thought and action in a response: `I need a mug. > go to shelf 1`."""

ANSWER_FORMS: Mapping[Listing, str] = {
    "none": f"`{ACTION_MARKER} ` and one action",
    "list": r"`\boxed{command}`",
    "numbered": r"`\boxed{number}`",
}
"""How a response must end, in words for prompts and environment."""

# No sentence of the game contains an empty line, and no text of the policy is repeated in one.
_HEADING = "\n\nPossible commands:\n"
_BOX = re.compile(r"\\boxed\{([^{}]*)\}")


def with_commands(text: str, commands: Sequence[str], listing: Listing) -> str:
    """Returns an observation followed by the possible commands, one per line, numbered from 1 if
    requested. They are part of it, so that a stored step holds everything that its response
    answered."""
    if listing == "none":
        return text
    lines = commands if listing == "list" else [f"{i}. {c}" for i, c in enumerate(commands, 1)]
    return text + _HEADING + "\n".join(lines)


def without_commands(observation: str) -> tuple[str, str]:
    """Returns the game's text, and the lines of the commands; these are empty if none were
    listed."""
    text, _, lines = observation.partition(_HEADING)
    return text, lines


def find_action(response: str) -> str | None:
    """Returns the first line after the last marker; None without a marker or text after it."""
    return action_after(ACTION_MARKER, response)


def find_command(response: str, commands: Sequence[str], listing: Listing) -> str | None:
    r"""Returns the command that a response names, or None.

    If commands are listed, it is the content of the last `\boxed{...}`, and a number stands for its
    command. A command after the marker also counts if it comes after any box. The returned command
    need not be possible: a number that is not in the list stays a number."""
    marked, start = find_action(response), response.rfind("\\boxed")
    said_last = marked in commands and response.rfind(ACTION_MARKER) > start
    if listing == "none" or start < 0 or said_last:
        return marked
    box = _BOX.match(response, start)
    named = box[1].strip() if box else ""
    numbers = {str(i): command for i, command in enumerate(commands, 1)}
    return (numbers.get(named, named) if listing == "numbered" else named) or None
