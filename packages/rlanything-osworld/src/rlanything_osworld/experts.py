"""The expert of generated tasks: knows the right action on a screen, after any earlier actions.

It goes through the moves of a goal. A right step leads to the next move. A step without effect
keeps the current move. A step back to a known screen returns to that screen's move. Any other step
is a detour; then the right action is the way back, if there is a simple one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlanything.records import Step
from rlanything_osworld.families.base import Move

WAIT = "wait"
PATIENCE = 2
"""Largest number of consecutive waits for what the next move needs."""
MOST_TRIES = 3
"""Largest number of consecutive attempts to return from a detour."""
_ELEMENT = re.compile(r"\[(\d+)\] (.*?)(?=(?: \|)? \[\d+\] |$)", re.MULTILINE)
_WANTED = re.compile(r"\[([^\[\]^]+)(?:\^(\d))?\]")
_HEADING = re.compile(r"^== ", re.MULTILINE)
_MENU = re.compile(r"menu item|^menus: .*\((?:focused|selected)", re.MULTILINE)
_WRITING = re.compile(r"type .*|press (?:.|enter|space|tab|backspace|delete|ctrl\+[vx])")


def next_action(
    moves: Sequence[Move], steps: Sequence[Step], screen: str | None = None
) -> str | None:
    """Returns the right action after `steps`, or None.

    `screen`: the screen to act on; None: the one after the last step. Before the first step that
    one is unknown, so a move that needs it is preceded by a wait."""
    if screen is None:
        if not steps:
            return WAIT if _needs_screen(moves[0]) else moves[0].action
        screen = _seen(steps, len(steps))
    course = _Course(moves)
    for i, step in enumerate(steps):
        course.take(step, _seen(steps, i), _seen(steps, i + 1))
    return course.right(screen)


def labels(moves: Sequence[Move], steps: Sequence[Step]) -> list[int]:
    """Returns +1 for each step that was right when it was taken, else -1."""
    course = _Course(moves)
    labels = list[int]()
    for i, step in enumerate(steps):
        before = _seen(steps, i)
        labels.append(1 if step.valid and _same(step.action, course.right(before)) else -1)
        course.take(step, before, _seen(steps, i + 1))
    return labels


class _Course:
    """An expert's progress through its moves."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self._moves = moves
        self._at = 0
        self._trail: list[tuple[str, int]] = []
        """Screens along the way, each with the next move at that point."""
        self._back: str | None = None
        """The way back from a detour; "" if none is known, None if there is no detour."""
        self._tries = self._waits = 0

    def right(self, screen: str) -> str | None:
        """Returns the right action, or None."""
        if self._back is not None:
            return self._back or None
        at = self._next(screen)
        if at == len(self._moves):
            return None
        ready = self._moves[at].needs in screen
        action = _filled(self._moves[at], screen) if ready else None
        return WAIT if action is None and self._waits < PATIENCE else action

    def take(self, step: Step, before: str, after: str) -> None:
        """Follows a step from one screen to another."""
        right = self.right(before)
        if self._back is None:
            self._at = self._next(before)
            self._trail.append((before, self._at))
        if not step.valid:
            return
        if self._back is None and _same(step.action, right):
            self._waits = self._waits + 1 if right == WAIT else 0
            self._at += right != WAIT
        elif step.action != WAIT and not self._return(after):
            self._stray(step, before, after, tried=_same(step.action, right))

    def _next(self, screen: str) -> int:
        at = self._at
        while at < len(self._moves) and self._moves[at].when not in screen:
            at += 1
        return at

    def _return(self, screen: str) -> bool:
        """Returns to the beginning of the last stay on a screen, because invisible state such as a
        caret may have changed since. Returns whether there was such a stay."""
        times = [i for i, (known, _) in enumerate(self._trail) if known == screen]
        if not times:
            return False
        first = times[-1]
        while first and self._trail[first - 1][0] == screen:
            first -= 1
        self._at = self._trail[first][1]
        del self._trail[first:]
        self._back = None
        self._tries = 0
        return True

    def _stray(self, step: Step, before: str, after: str, tried: bool) -> None:
        """Finds a way back from a step that led to an unknown screen."""
        self._tries = self._tries + 1 if tried else 0
        if self._back == "press escape" and _opened(after) <= _opened(self._trail[-1][0]):
            # It was closed, and only the focus differs.
            self._back = None
            self._tries = 0
        elif self._back == "" or self._tries == MOST_TRIES:
            self._back = ""
        elif _opened(after) > _opened(before):
            self._back = "press escape"
        elif _WRITING.fullmatch(step.action or ""):
            self._back = _undo(after)
        elif self._back is None:
            self._back = self._again(after)

    def _again(self, screen: str) -> str | None:
        """Returns None if the focus was lost and a move selects it again, else ""."""
        for at in (self._at, self._at - 1):
            if 0 <= at < len(self._moves) and _WANTED.search(self._moves[at].action):
                if _filled(self._moves[at], screen) is None:
                    break
                self._at = at
                return None
        return ""


def number_of(screen: str, label: str, nth: int = 1) -> int | None:
    """Returns the number of the nth element whose text is a label or begins with it, or None if the
    screen does not show it."""
    for match in _ELEMENT.finditer(screen):
        said = match[2]
        if said == label or said.startswith((f"{label} ", f"{label}:")):
            nth -= 1
            if nth == 0:
                return int(match[1])
    return None


def label_of(screen: str, number: int) -> str | None:
    """Returns the text of a numbered element, or None if the screen does not show it."""
    return next((each[2] for each in _ELEMENT.finditer(screen) if int(each[1]) == number), None)


def _seen(steps: Sequence[Step], at: int) -> str:
    """Returns the screen before a step, without the message about an impossible earlier step."""
    screen = steps[at].observation if at < len(steps) else steps[-1].next_observation
    return screen if at == 0 or steps[at - 1].valid else screen.partition("\n")[2]


def _opened(screen: str) -> int:
    """Returns the number of open windows; all open menus count as one."""
    return len(_HEADING.findall(screen)) + (_MENU.search(screen) is not None)


def _undo(screen: str) -> str:
    """Returns the action that undoes typing in the front application."""
    if re.search(r"\] terminal ", screen):
        return "press ctrl+u"
    return "press escape" if "LibreOffice Calc (active)" in screen else "press ctrl+z"


def _same(one: str | None, other: str | None) -> bool:
    return one is not None and one == other


def _needs_screen(move: Move) -> bool:
    return bool(move.when or move.needs) or _WANTED.search(move.action) is not None


def _filled(move: Move, screen: str) -> str | None:
    """Returns a move's action with the screen's element number, or None if the screen has none."""
    match = _WANTED.search(move.action)
    if match is None:
        return move.action
    number = number_of(screen, match[1], int(match[2] or 1))
    if number is None:
        return None
    return f"{move.action[: match.start()]}[{number}]{move.action[match.end() :]}"
