"""The expert of generated tasks: follows the moves of a goal, on what the screen shows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlanything.domains.osworld.families.base import Move
from rlanything.records import Step

WAIT = "wait"
_ELEMENT = re.compile(r"\[(\d+)\] (.*?)(?=(?: \|)? \[\d+\] |$)", re.MULTILINE)
_WANTED = re.compile(r"\[([^\[\]^]+)(?:\^(\d))?\]")


def next_action(moves: Sequence[Move], steps: Sequence[Step]) -> str | None:
    """Returns the action after `steps`; None where these were not the expert's own, or where the
    screen does not show what the next move needs.

    Before the first step no screen is known: a move that needs one is preceded by a wait."""
    at = 0
    if steps and _needs_screen(moves[0]) and steps[0].action == WAIT:
        steps_left = steps[1:]
    else:
        steps_left = steps
    if not steps:
        return WAIT if _needs_screen(moves[0]) else moves[0].action
    for step in steps_left:
        at = _next_shown(moves, at, step.observation)
        if at == len(moves) or step.action != _filled(moves[at], step.observation):
            return None
        at += 1
    screen = steps[-1].next_observation
    at = _next_shown(moves, at, screen)
    return None if at == len(moves) else _filled(moves[at], screen)


def number_of(screen: str, label: str, nth: int = 1) -> int | None:
    """Returns the number of the nth element whose text is a label or begins with it; None where
    the screen does not show it."""
    for match in _ELEMENT.finditer(screen):
        said = match[2]
        if said == label or said.startswith((f"{label} ", f"{label}:")):
            nth -= 1
            if nth == 0:
                return int(match[1])
    return None


def _next_shown(moves: Sequence[Move], at: int, screen: str) -> int:
    while at < len(moves) and moves[at].when not in screen:
        at += 1
    return at


def _needs_screen(move: Move) -> bool:
    return bool(move.when) or _WANTED.search(move.action) is not None


def _filled(move: Move, screen: str) -> str | None:
    """Returns a move's action, with the number that the screen has; None where it has none."""
    match = _WANTED.search(move.action)
    if match is None:
        return move.action
    number = number_of(screen, match[1], int(match[2] or 1))
    if number is None:
        return None
    return f"{move.action[: match.start()]}[{number}]{move.action[match.end() :]}"
