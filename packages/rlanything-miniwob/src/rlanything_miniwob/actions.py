"""The actions that an agent may take on a page, and their notation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from rlanything.domains.text import action_after

ACTION_MARKER = ">"

KEYS = {
    key.lower(): key
    for key in (
        *("Enter", "Tab", "Escape", "Backspace", "Delete", "Space", "Home", "End"),
        *("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "PageUp", "PageDown"),
        *("Control+a", "Control+c", "Control+x", "Control+v"),
    )
}


CLIPBOARD_KEYS = {"Control+c", "Control+x", "Control+v"}


@dataclass(frozen=True, slots=True)
class Click:
    number: int


@dataclass(frozen=True, slots=True)
class ClickAt:
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Type:
    """Replaces the content of a field; an empty text clears it."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Select:
    number: int
    option: str


@dataclass(frozen=True, slots=True)
class Press:
    key: str


@dataclass(frozen=True, slots=True)
class Scroll:
    down: bool


Action: TypeAlias = Click | ClickAt | Type | Select | Press | Scroll


class InvalidAction(ValueError):
    """An action that cannot be carried out; the message tells the agent why."""


USAGE = (
    "click [n], click x y, type [n] text, select [n] option, press key, scroll up or scroll down"
)
USAGE_BY_SIGHT = "click x y, press key, scroll up or scroll down"
"""The actions that remain when elements have no numbers."""
LONGEST_TEXT = 500
"""Largest number of characters that one action may type."""
_CLICK = re.compile(r"click \[(\d{1,4})\]")
_CLICK_AT = re.compile(r"click (\d{1,4}) (\d{1,4})")
_TYPE = re.compile(r"type \[(\d{1,4})\](?: (.*))?")
_SELECT = re.compile(r"select \[(\d{1,4})\] (.+)")
_PRESS = re.compile(r"press (\S+)")
_SCROLL = re.compile(r"scroll (up|down)")


def find_action(response: str) -> str | None:
    """Returns the first line after the last marker; None without a marker."""
    return action_after(ACTION_MARKER, response)


def parse_action(text: str) -> Action:
    """Returns the action of a line. Raises `InvalidAction` for anything outside `USAGE`."""
    if match := _CLICK.fullmatch(text):
        return Click(int(match[1]))
    if match := _CLICK_AT.fullmatch(text):
        return ClickAt(int(match[1]), int(match[2]))
    if match := _TYPE.fullmatch(text):
        text = match[2] or ""
        if len(text) > LONGEST_TEXT:
            raise InvalidAction(f"No more than {LONGEST_TEXT} characters can be typed at once.")
        return Type(int(match[1]), text)
    if match := _SELECT.fullmatch(text):
        return Select(int(match[1]), match[2])
    if match := _PRESS.fullmatch(text):
        if match[1].lower() not in KEYS:
            raise InvalidAction(f"There is no key {match[1]}; keys are {', '.join(KEYS.values())}.")
        return Press(KEYS[match[1].lower()])
    if match := _SCROLL.fullmatch(text):
        return Scroll(match[1] == "down")
    raise InvalidAction(f"An action is one of: {USAGE}.")
