"""The part of PyAutoGUI that agents use, on the X server's test extension.

OSWorld's actions are Python that imports a module of this name. Coordinates are pixels of the
screen. Durations and easing are accepted but ignored: a move is instantaneous.
"""

# pyright: reportMissingImports=false, reportMissingModuleSource=false
from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from Xlib import XK, X
from Xlib.display import Display
from Xlib.ext import xtest

FAILSAFE = False
PAUSE = 0.0
BETWEEN_CLICKS = 0.05
"""Seconds between clicks; programs miss a second click that comes too soon."""
BUTTONS = {"left": 1, "middle": 2, "right": 3, "primary": 1, "secondary": 3, 1: 1, 2: 2, 3: 3}
_NAMES = {
    "enter": "Return",
    "return": "Return",
    "\n": "Return",
    "\r": "Return",
    "tab": "Tab",
    "\t": "Tab",
    "esc": "Escape",
    "escape": "Escape",
    "backspace": "BackSpace",
    "\b": "BackSpace",
    "del": "Delete",
    "delete": "Delete",
    "insert": "Insert",
    "home": "Home",
    "end": "End",
    "pageup": "Page_Up",
    "pgup": "Page_Up",
    "pagedown": "Page_Down",
    "pgdn": "Page_Down",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "space": "space",
    "ctrl": "Control_L",
    "control": "Control_L",
    "ctrlleft": "Control_L",
    "ctrlright": "Control_R",
    "shift": "Shift_L",
    "shiftleft": "Shift_L",
    "shiftright": "Shift_R",
    "alt": "Alt_L",
    "altleft": "Alt_L",
    "altright": "Alt_R",
    "option": "Alt_L",
    "win": "Super_L",
    "winleft": "Super_L",
    "winright": "Super_R",
    "super": "Super_L",
    "command": "Super_L",
    "apps": "Menu",
    "menu": "Menu",
    "capslock": "Caps_Lock",
    "numlock": "Num_Lock",
    "scrolllock": "Scroll_Lock",
    "printscreen": "Print",
    "prtsc": "Print",
    "pause": "Pause",
    "plus": "plus",
    "minus": "minus",
    **{f"f{number}": f"F{number}" for number in range(1, 25)},
}
KEYBOARD_KEYS = [*_NAMES, *map(chr, range(32, 127))]

_display = Display()
_root = _display.screen().root
_spare: dict[int, int] = {}


def easeInQuad(n: float) -> float:  # noqa: N802
    """Returns the progress of a move; moves take no time here."""
    return n


easeOutQuad = easeInOutQuad = easeInBounce = easeInElastic = easeInQuad  # noqa: N816


def size() -> tuple[int, int]:
    """Returns width and height of the screen."""
    screen = _display.screen()
    return screen.width_in_pixels, screen.height_in_pixels


def position() -> tuple[int, int]:
    """Returns the position of the pointer."""
    pointer = _root.query_pointer()
    return pointer.root_x, pointer.root_y


def onScreen(x: float, y: float) -> bool:  # noqa: N802
    """Returns whether a point is on the screen."""
    width, height = size()
    return 0 <= x < width and 0 <= y < height


def sleep(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)


def moveTo(x: float | None = None, y: float | None = None, *_: object, **__: object) -> None:  # noqa: N802
    """Moves the pointer."""
    if isinstance(x, Sequence):
        x, y = x
    here = position()
    x, y = here[0] if x is None else int(x), here[1] if y is None else int(y)
    width, height = size()
    x, y = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
    xtest.fake_input(_display, X.MotionNotify, x=int(x), y=int(y))
    _display.sync()


def moveRel(x: float = 0, y: float = 0, *_: object, **__: object) -> None:  # noqa: N802
    """Moves the pointer by this distance."""
    here = position()
    moveTo(here[0] + x, here[1] + y)


move = moveRel


def mouseDown(  # noqa: N802
    x: float | None = None, y: float | None = None, button: str = "left", **_: object
) -> None:
    """Presses a button and holds it."""
    moveTo(x, y)
    xtest.fake_input(_display, X.ButtonPress, BUTTONS[button])
    _display.sync()


def mouseUp(  # noqa: N802
    x: float | None = None, y: float | None = None, button: str = "left", **_: object
) -> None:
    """Releases a button."""
    moveTo(x, y)
    xtest.fake_input(_display, X.ButtonRelease, BUTTONS[button])
    _display.sync()


def click(
    x: float | None = None,
    y: float | None = None,
    clicks: int = 1,
    interval: float = 0.0,
    button: str = "left",
    **_: object,
) -> None:
    """Clicks this many times."""
    moveTo(x, y)
    for _number in range(clicks):
        mouseDown(button=button)
        mouseUp(button=button)
        time.sleep(max(interval, BETWEEN_CLICKS if clicks > 1 else 0.0))


def leftClick(x: float | None = None, y: float | None = None, **_: object) -> None:  # noqa: N802
    """Clicks with the left button."""
    click(x, y)


def rightClick(x: float | None = None, y: float | None = None, **_: object) -> None:  # noqa: N802
    """Clicks with the right button."""
    click(x, y, button="right")


def middleClick(x: float | None = None, y: float | None = None, **_: object) -> None:  # noqa: N802
    """Clicks with the middle button."""
    click(x, y, button="middle")


def doubleClick(  # noqa: N802
    x: float | None = None, y: float | None = None, button: str = "left", **_: object
) -> None:
    """Clicks twice."""
    click(x, y, 2, button=button)


def tripleClick(  # noqa: N802
    x: float | None = None, y: float | None = None, button: str = "left", **_: object
) -> None:
    """Clicks three times."""
    click(x, y, 3, button=button)


def dragTo(  # noqa: N802
    x: float | None = None,
    y: float | None = None,
    duration: float = 0.0,
    *_: object,
    button: str = "left",
    **__: object,
) -> None:
    """Moves the pointer while holding a button."""
    start = position()
    x, y = start[0] if x is None else x, start[1] if y is None else y
    mouseDown(button=button)
    # Programs recognize a drag only after several small moves.
    for part in range(1, 11):
        moveTo(start[0] + (x - start[0]) * part / 10, start[1] + (y - start[1]) * part / 10)
        time.sleep(0.01)
    mouseUp(button=button)


def dragRel(x: float = 0, y: float = 0, *rest: object, **named: object) -> None:  # noqa: N802
    """Moves the pointer by this distance while holding a button."""
    here = position()
    dragTo(here[0] + x, here[1] + y, button=str(named.get("button", "left")))


drag = dragRel


def scroll(clicks: float, x: float | None = None, y: float | None = None, **_: object) -> None:
    """Turns the wheel: up for positive `clicks`."""
    _wheel(4 if clicks > 0 else 5, clicks, x, y)


vscroll = scroll


def hscroll(clicks: float, x: float | None = None, y: float | None = None, **_: object) -> None:
    """Turns the wheel sideways: right for positive `clicks`."""
    _wheel(7 if clicks > 0 else 6, clicks, x, y)


def keyDown(key: str, **_: object) -> None:  # noqa: N802
    """Presses a key and holds it."""
    code, shifted = _keycode(key)
    if shifted:
        _key(_keycode("shift")[0], True)
    _key(code, True)


def keyUp(key: str, **_: object) -> None:  # noqa: N802
    """Releases a key."""
    code, shifted = _keycode(key)
    _key(code, False)
    if shifted:
        _key(_keycode("shift")[0], False)


def press(keys: str | Iterable[str], presses: int = 1, interval: float = 0.0, **_: object) -> None:
    """Presses keys one after the other, the whole sequence `presses` times."""
    names = [keys] if isinstance(keys, str) else list(keys)
    for _number in range(presses):
        for name in names:
            keyDown(name)
            keyUp(name)
        time.sleep(interval)


def hotkey(*keys: str | Sequence[str], **_: object) -> None:
    """Presses keys together."""
    names = [name for key in keys for name in ([key] if isinstance(key, str) else key)]
    for name in names:
        keyDown(name)
    for name in reversed(names):
        keyUp(name)


def typewrite(message: str | Sequence[str], interval: float = 0.0, **_: object) -> None:
    """Types a text; from a list, it presses keys by name."""
    for name in message:
        press(name)
        time.sleep(interval)


write = typewrite


def isValidKey(key: str) -> bool:  # noqa: N802
    """Returns whether there is a key of that name."""
    return key.lower() in _NAMES or len(key) == 1


def _wheel(button: int, clicks: float, x: float | None, y: float | None) -> None:
    moveTo(x, y)
    for _number in range(min(abs(int(clicks)), 200)):
        xtest.fake_input(_display, X.ButtonPress, button)
        xtest.fake_input(_display, X.ButtonRelease, button)
    _display.sync()


def _key(code: int, down: bool) -> None:
    xtest.fake_input(_display, X.KeyPress if down else X.KeyRelease, code)
    _display.sync()


def _keycode(key: str) -> tuple[int, bool]:
    """Returns the code of a key, and whether it needs Shift. Raises `ValueError`."""
    name = _NAMES.get(key if len(key) == 1 else key.lower())
    if name is not None:
        symbol = XK.string_to_keysym(name)
    elif len(key) == 1:
        symbol = ord(key) if ord(key) < 256 else 0x1000000 | ord(key)
    else:
        raise ValueError(f"there is no key {key!r}")
    for code, level in _display.keysym_to_keycodes(symbol):
        if level in (0, 1) and code not in _spare.values():
            return code, level == 1
    return _spare_key(symbol), False


def _spare_key(symbol: int) -> int:
    """Returns an unused key of the keyboard, mapped to the symbol.

    Each symbol has its own key: programs notice a changed mapping late."""
    if symbol not in _spare:
        first = _display.display.info.min_keycode
        rows = _display.get_keyboard_mapping(first, _display.display.info.max_keycode - first + 1)
        empty = [
            first + i
            for i, row in enumerate(rows)
            if not any(row) and first + i not in _spare.values()
        ]
        if not empty:
            _spare.clear()
            return _spare_key(symbol)
        _spare[symbol] = empty[-1]
        _display.change_keyboard_mapping(empty[-1], [(symbol, symbol)])
        _display.sync()
        time.sleep(0.05)
    return _spare[symbol]
