"""The actions that an agent may take on a desktop, in three notations.

`numbered`: on the numbers in the screen's text, for small models. `computer_13` and `pyautogui`:
OSWorld's own two action spaces, on coordinates of the screenshot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from rlanything.strict_json import read_json
from rlanything_osworld.families.base import DESKTOP
from rlanything_osworld.screen import ScreenPlace

ACTION_MARKER = ">"
Notation = Literal["numbered", "computer_13", "pyautogui"]
LONGEST_TEXT = 500
"""Largest number of characters that one action may type."""
LONGEST_CODE = 4000
SCROLL_CLICKS = 5
USAGE: dict[Notation, str] = {
    "numbered": (
        "click [n], double_click [n], right_click [n], type TEXT, press KEY (as in ctrl+s), "
        "scroll up [n], scroll down [n], drag [n] [n], wait, done, fail"
    ),
    "computer_13": (
        'JSON such as {"action_type": "CLICK", "parameters": {"x": 10, "y": 20}}, of the type '
        "MOVE_TO, CLICK, MOUSE_DOWN, MOUSE_UP, RIGHT_CLICK, DOUBLE_CLICK, DRAG_TO, SCROLL, TYPING, "
        "PRESS, KEY_DOWN, KEY_UP, HOTKEY, WAIT, DONE or FAIL"
    ),
    "pyautogui": "Python between ``` and ```, which may use pyautogui; or WAIT, DONE or FAIL",
}
KEYS = frozenset(
    (
        *("enter", "return", "tab", "esc", "escape", "backspace", "del", "delete", "insert"),
        *("home", "end", "pageup", "pgup", "pagedown", "pgdn", "up", "down", "left", "right"),
        *("space", "ctrl", "control", "ctrlleft", "ctrlright", "shift", "shiftleft"),
        *("shiftright", "alt", "altleft", "altright", "option", "win", "winleft", "winright"),
        *("super", "command", "apps", "menu", "capslock", "numlock", "scrolllock", "printscreen"),
        *("prtsc", "pause", "plus", "minus", *(f"f{number}" for number in range(1, 25))),
    )
)
"""Keys with names; every other key is one character."""
LISTED_KEYS = (
    *("enter", "tab", "escape", "space", "backspace", "delete", "up", "down", "left", "right"),
    *("home", "end", "pageup", "pagedown", "f2", "f5", "f10", "shift+tab", "alt+f4"),
    *(f"ctrl+{key}" for key in "acdefhlnorstvwxz"),
    *("ctrl+home", "ctrl+end", "ctrl+enter", "ctrl+shift+n", "ctrl+shift+s", "ctrl+shift+t"),
)
"""Keys in a list of possible actions: the ones that most applications react to."""
LONGEST_LISTED = 60
"""Longest word of the task in characters that such a list offers to type."""
MOST_LISTED = 400
"""Largest number of elements that such a list offers, from the first lines: a program may show any
number."""
_BUTTONS = ("left", "right", "middle")
_NUMBER = r"\[?(\d{1,4})\]?"
_CLICK = re.compile(rf"(click|double_click|right_click) {_NUMBER}")
_TYPE = re.compile(r"type (.+)")
_PRESS = re.compile(r"press (\S+)")
_SCROLL = re.compile(rf"scroll (up|down)(?: {_NUMBER})?")
_DRAG = re.compile(rf"drag {_NUMBER} {_NUMBER}")
_CALLS = {"click": "click", "double_click": "doubleClick", "right_click": "rightClick"}
_WORD = re.compile(r"[^\s,;:!?()\"']*[^\s,;:!?()\"'.]")
_FILE = re.compile(r"[^/]+\.\w{1,5}")
_FENCE = re.compile(r"```(?:python)?[ \t]*\n?(.*?)```", re.DOTALL)


class ImpossibleAction(ValueError):
    """An action that cannot be carried out; the message tells the agent why."""


@dataclass(frozen=True, slots=True)
class DesktopAction:
    """An action on the desktop; empty to wait."""

    calls: tuple[tuple[Any, ...], ...] = ()
    """Calls of the desktop's own `pyautogui`, each a name with its arguments."""
    code: str | None = None
    """Python code that the desktop runs in a separate process."""
    ending: Literal["done", "fail"] | None = None
    """Set if the agent ends the episode: the task is done, or the agent considers it impossible."""


def find_action(response: str, notation: Notation) -> str | None:
    """Returns the action in a response, or None.

    It follows the first marker of the last line that has one, so that a text to type may contain
    the marker. In `pyautogui` it is the last code block, or one of the three words at the end."""
    if notation == "pyautogui":
        blocks = _FENCE.findall(response)
        last = response.strip().rpartition("\n")[2].strip(" \t`>")
        code = blocks[-1].strip() if blocks else ""
        return code or (last if last in ("WAIT", "DONE", "FAIL") else None)
    for line in reversed(response.splitlines()):
        _, marker, rest = line.partition(ACTION_MARKER)
        if marker:
            return rest.strip(" \t\r") or None
    return None


def parse_action(
    text: str, notation: Notation, places: Mapping[int, ScreenPlace], size: tuple[int, int]
) -> DesktopAction:
    """Returns the parsed action. `places`: places of the screen that it answers. `size`: of the
    screen in pixels. Raises `ImpossibleAction`."""
    if text.casefold() == "wait":
        return DesktopAction()
    if text.casefold() == "done":
        return DesktopAction(ending="done")
    if text.casefold() == "fail":
        return DesktopAction(ending="fail")
    if notation == "numbered":
        return DesktopAction(_numbered(text, places))
    if notation == "computer_13":
        return _computer_13(text, size)
    if len(text) > LONGEST_CODE:
        raise ImpossibleAction(f"The code is longer than {LONGEST_CODE} characters.")
    return DesktopAction(code=text)


def listed_actions(instruction: str, places: Mapping[int, ScreenPlace]) -> tuple[str, ...]:
    """Returns the numbered actions for an agent that chooses from a list: the elements of a screen,
    the usual keys, and typing single words of the task, file names also with the folder of the
    desktop. An agent that answers freely can do more."""
    actions = [f"press {key}" for key in LISTED_KEYS]
    for number, place in islice(places.items(), MOST_LISTED):
        calls = ("click",) if place.window is not None else _CALLS
        actions += [f"{call} [{number}]" for call in calls]
    words = [word for word in _WORD.findall(instruction) if len(word) <= LONGEST_LISTED]
    actions += [f"type {word}" for word in words]
    actions += [f"type {DESKTOP}/{word}" for word in words if _FILE.fullmatch(word)]
    return (*dict.fromkeys(actions), "scroll up", "scroll down", "wait", "done", "fail")


def _numbered(text: str, places: Mapping[int, ScreenPlace]) -> tuple[tuple[Any, ...], ...]:
    if match := _CLICK.fullmatch(text):
        place = _place(match[2], places)
        if place.window is not None:
            return (("activate", place.window),)
        return ((_CALLS[match[1]], place.x, place.y),)
    if match := _TYPE.fullmatch(text):
        return (("write", _typed(match[1])),)
    if match := _PRESS.fullmatch(text):
        return (("hotkey", *map(_key, _keys(match[1]))),)
    if match := _SCROLL.fullmatch(text):
        clicks = SCROLL_CLICKS if match[1] == "up" else -SCROLL_CLICKS
        if match[2] is None:
            return (("scroll", clicks),)
        place = _point(match[2], places)
        return (("scroll", clicks, place.x, place.y),)
    if match := _DRAG.fullmatch(text):
        start, end = _point(match[1], places), _point(match[2], places)
        return (("moveTo", start.x, start.y), ("dragTo", end.x, end.y))
    raise ImpossibleAction(f"An action is one of: {USAGE['numbered']}.")


def _place(number: str, places: Mapping[int, ScreenPlace]) -> ScreenPlace:
    place = places.get(int(number))
    if place is None:
        raise ImpossibleAction(f"There is no element {number} on the screen.")
    return place


def _point(number: str, places: Mapping[int, ScreenPlace]) -> ScreenPlace:
    place = _place(number, places)
    if place.window is not None:
        raise ImpossibleAction(f"Element {number} is a window: it can be clicked, and no more.")
    return place


def _typed(text: Any) -> str:
    if not isinstance(text, str):
        raise ImpossibleAction("The text to type is no text.")
    if len(text) > LONGEST_TEXT:
        raise ImpossibleAction(f"No more than {LONGEST_TEXT} characters can be typed at once.")
    if any(ord(character) < 32 and character not in "\n\t" for character in text):
        raise ImpossibleAction("There are characters in the text that no key gives.")
    return text


def _keys(text: str) -> list[str]:
    """Returns the keys of `ctrl+shift+t`; the last key may be the plus itself."""
    if text == "+":
        return ["+"]
    if text.endswith("++"):
        return [*text[:-2].split("+"), "+"]
    return text.split("+")


def _key(name: Any) -> str:
    if isinstance(name, str) and name.casefold() in KEYS:
        return name.casefold()
    if isinstance(name, str) and len(name) == 1 and name.isprintable():
        return name
    raise ImpossibleAction(f"There is no key {str(name)[:40]!r}.")


def _computer_13(text: str, size: tuple[int, int]) -> DesktopAction:
    try:
        action = read_json(text)
    except (ValueError, RecursionError):
        raise ImpossibleAction(f"An action is one of: {USAGE['computer_13']}.") from None
    if isinstance(action, str):
        return parse_action(action, "numbered", {}, size)
    kind = action.get("action_type") if isinstance(action, dict) else None
    if kind in ("WAIT", "DONE", "FAIL"):
        return parse_action(kind, "numbered", {}, size)
    if not isinstance(kind, str) or kind not in _COMPUTER_13:
        raise ImpossibleAction(f"An action is one of: {USAGE['computer_13']}.")
    given = action.get("parameters")
    if given is None:
        given = {name: value for name, value in action.items() if name != "action_type"}
    if not isinstance(given, dict):
        raise ImpossibleAction(f"The parameters of {kind} are no object.")
    required, optional, calls = _COMPUTER_13[kind]
    unknown = sorted(given.keys() - {*required, *optional})
    lacking = [name for name in required if name not in given]
    if unknown or lacking:
        fault = f"has no {unknown[0][:40]}" if unknown else f"needs {lacking[0]}"
        raise ImpossibleAction(f"{kind} {fault}.")
    return DesktopAction(calls(_Given(given, size)))


class _Given:
    """The parameters of an action, checked when they are read."""

    def __init__(self, values: Mapping[str, Any], size: tuple[int, int]) -> None:
        self._values = values
        self._size = size

    def point(self) -> tuple[int | None, int | None]:
        """Returns x and y; both are None if neither is given."""
        x, y = self._values.get("x"), self._values.get("y")
        if (x is None) != (y is None):
            raise ImpossibleAction("A point has x and y.")
        return self._coordinate(x, self._size[0]), self._coordinate(y, self._size[1])

    def number(self, name: str, otherwise: int, most: int) -> int:
        """Returns a whole number from -most to most."""
        value = self._values.get(name, otherwise)
        if isinstance(value, bool) or not isinstance(value, int) or not -most <= value <= most:
            raise ImpossibleAction(f"{name} is no whole number up to {most}.")
        return value

    def button(self) -> str:
        button = self._values.get("button", "left")
        if button not in _BUTTONS:
            raise ImpossibleAction(f"A button is one of {', '.join(_BUTTONS)}.")
        return button

    def text(self) -> str:
        return _typed(self._values["text"])

    def key(self) -> str:
        return _key(self._values["key"])

    def keys(self) -> list[str]:
        keys = self._values["keys"]
        if not isinstance(keys, list) or not 1 <= len(keys) <= 8:
            raise ImpossibleAction("keys is a list of one to eight keys.")
        return [_key(key) for key in keys]

    @staticmethod
    def _coordinate(value: Any, size: int) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < size:
            raise ImpossibleAction(f"A coordinate is a number from 0 to {size - 1}.")
        return int(value)


_Calls = Callable[[_Given], tuple[tuple[Any, ...], ...]]
_COMPUTER_13: dict[str, tuple[tuple[str, ...], tuple[str, ...], _Calls]] = {
    "MOVE_TO": (("x", "y"), (), lambda given: (("moveTo", *given.point()),)),
    "CLICK": (
        (),
        ("x", "y", "button", "num_clicks"),
        lambda given: (
            ("click", *given.point(), abs(given.number("num_clicks", 1, 3)), 0.0, given.button()),
        ),
    ),
    "MOUSE_DOWN": ((), ("button",), lambda given: (("mouseDown", None, None, given.button()),)),
    "MOUSE_UP": ((), ("button",), lambda given: (("mouseUp", None, None, given.button()),)),
    "RIGHT_CLICK": ((), ("x", "y"), lambda given: (("rightClick", *given.point()),)),
    "DOUBLE_CLICK": ((), ("x", "y"), lambda given: (("doubleClick", *given.point()),)),
    "DRAG_TO": (("x", "y"), (), lambda given: (("dragTo", *given.point()),)),
    "SCROLL": (
        (),
        ("dx", "dy"),
        lambda given: (
            ("hscroll", given.number("dx", 0, 100)),
            ("scroll", given.number("dy", 0, 100)),
        ),
    ),
    "TYPING": (("text",), (), lambda given: (("write", given.text()),)),
    "PRESS": (("key",), (), lambda given: (("press", given.key()),)),
    "KEY_DOWN": (("key",), (), lambda given: (("keyDown", given.key()),)),
    "KEY_UP": (("key",), (), lambda given: (("keyUp", given.key()),)),
    "HOTKEY": (("keys",), (), lambda given: (("hotkey", *given.keys()),)),
}
"""For each type its required and optional parameters, and the calls that it stands for."""
