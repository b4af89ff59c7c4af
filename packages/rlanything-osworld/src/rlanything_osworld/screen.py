"""The text form of a screen for an agent, and the places that its numbers mean.

A window is a heading, with its elements below: `[n] role name: text (state)`; related elements
share a line. Anything that cannot be acted on is omitted: layout, disabled buttons, covered parts.
There are no coordinates, sizes, times or amounts of memory, which would differ between episodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LONGEST_LINE = 300
"""Longest text in characters shown on one line."""
DEEPEST = 60
"""Largest accepted depth of a tree."""
LONGEST_BLOCK = 24
"""Largest number of lines shown of a multi-line text; a terminal shows its end."""
NAMES = {
    "push button": "button",
    "toggle button": "toggle",
    "page tab": "tab",
    "radio button": "radio",
    "document web": "page",
    "table cell": "cell",
    "text": "field",
    "entry": "field",
    "password text": "field",
    "list item": "item",
    "tree item": "item",
    "check menu item": "menu item",
    "radio menu item": "menu item",
}
ACTIVE = {
    *("push button", "toggle button", "check box", "radio button", "combo box", "entry", "text"),
    *("password text", "spin button", "slider", "menu", "menu item", "check menu item", "icon"),
    *("radio menu item", "page tab", "link", "list item", "tree item", "table cell", "terminal"),
    *("table column header", "tree table cell", "document text"),
}
"""Roles of elements that can be acted on: they get numbers."""
SPOKEN = {"label", "static", "heading", "paragraph", "alert", "progress bar", "info bar"}
"""Roles of elements that are only read."""
ROWS = {"menu bar", "tool bar", "page tab list", "statusbar", "status bar"}
"""Containers whose elements share one line, without their roles."""
IN_MENUS = {
    *("New", "Open", "Save", "Export Directly as PDF", "Print", "Print Preview", "Cut", "Copy"),
    *("Paste", "Clone", "Undo", "Redo", "Find and Replace", "Spelling", "Formatting Marks"),
    *("Table", "Image", "Chart", "Pivot Table", "Media", "Text Box", "Page Break", "Field"),
    *("Symbol", "Hyperlink", "Footnote", "Endnote", "Bookmark", "Cross-reference", "Comment"),
    *("Track Changes Functions", "Insert Fontwork", "Draw Functions", "Function Wizard"),
    *("Print Area", "Freeze Rows and Columns", "Split Window", "Merge Cells"),
    *("Merge and Center Cells", "Expand Formula Bar"),
}
"""Buttons in LibreOffice's tool bars that its menus have too: they are omitted."""
SHOWN_STATES = ("focused", "checked", "selected", "expanded")
_VOLATILE = re.compile(r"\s*-? ?(Memory usage - |Free space: |Total: ).*", re.DOTALL)
_OF_SHEET = re.compile(r"[A-Z]{1,3}\d{1,7}")
_HIDDEN_NAMES = {"Openbox"}
LAUNCHER = "Launcher"


@dataclass(frozen=True, slots=True)
class ScreenPlace:
    """The meaning of a number: a point of the screen, or a window to bring to the front."""

    x: int
    y: int
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Screen:
    """A screen in words."""

    text: str
    places: Mapping[int, ScreenPlace]
    """Places by their numbers in the text."""


@dataclass(slots=True)
class _Item:
    """A node with its descendants."""

    role: str
    name: str
    text: str
    box: tuple[int, int, int, int] | None
    states: frozenset[str]
    children: list[_Item] = field(default_factory=list)


def read_screen(tree: Mapping[str, Any], size: tuple[int, int]) -> Screen:
    """Returns the screen in the server's answer to `tree`.

    Raises `KeyError`, `TypeError` or `ValueError` for an answer in another format."""
    windows = [window for window in tree["windows"] if window["title"] not in _HIDDEN_NAMES]
    frames = [frame for application in _items(tree["nodes"]) for frame in application.children]
    return _Writer(windows, frames, size).screen()


class _Writer:
    """Writes one screen and assigns the numbers."""

    def __init__(
        self, windows: Sequence[Mapping[str, Any]], frames: list[_Item], size: tuple[int, int]
    ) -> None:
        self._size = size
        self._windows = windows
        self._frames = frames
        self._lines: list[str] = []
        self._places: dict[int, ScreenPlace] = {}

    def screen(self) -> Screen:
        """Returns the text: the launcher, then windows from the topmost to the lowest."""
        order = sorted(self._windows, key=lambda window: window["title"] == LAUNCHER)[::-1]
        blocked = None  # the program whose other windows are blocked by a dialog
        for window in order:
            frame = self._frame_of(window)
            if frame is not None and window["active"] and "modal" in frame.states:
                blocked = window["pid"]
            if window["title"] == LAUNCHER and frame is not None:
                self._row(LAUNCHER, frame, window)
            elif window["managed"] or frame is not None:
                self._heading(window)
                if frame is not None and (window["active"] or window["pid"] != blocked):
                    self._items(frame, window, in_menu=False)
        return Screen("\n".join(self._lines), self._places)

    def _frame_of(self, window: Mapping[str, Any]) -> _Item | None:
        """Returns the accessible frame of a window; each frame is used once."""
        for frame in self._frames:
            if window["managed"] and frame.name == window["title"]:
                self._frames.remove(frame)
                return frame
        for frame in self._frames:
            titled = any(frame.name == each["title"] for each in self._windows)
            if _near(frame.box, window["box"]) and not titled:
                self._frames.remove(frame)
                return frame
        return None

    def _heading(self, window: Mapping[str, Any]) -> None:
        title = _clean(window["title"])
        if not window["managed"]:
            self._lines.append("== menu" if not title else f"== {title}")
        elif window["active"]:
            self._lines.append(f"== {title} (active)")
        else:
            number = self._number(ScreenPlace(0, 0, int(window["number"])))
            self._lines.append(f"== [{number}] {title}")

    def _items(self, item: _Item, window: Mapping[str, Any], in_menu: bool) -> None:
        for child in item.children:
            if child.role == "menu bar" and _empty(child.box):
                continue  # LibreOffice lists its menus a second time, without a position
            if child.role in ROWS:
                self._row(child.role, child, window)
                if child.role != "page tab list":
                    self._opened(child, window)
                    continue
                for tab in child.children:
                    self._items(tab, window, in_menu)
                continue
            if child.role in ("table", "tree table", "table row"):
                self._table(child, window)
                continue
            self._item(child, window, in_menu)
            inside = in_menu or child.role == "menu"
            if child.role not in ("push button", "toggle button", "icon", "page tab"):
                self._items(child, window, inside)

    def _opened(self, row: _Item, window: Mapping[str, Any]) -> None:
        """Writes the items of the open menus of a bar."""
        for child in row.children:
            if child.role == "menu" and child.children:
                self._items(child, window, in_menu=True)
            elif child.role not in ACTIVE:
                self._opened(child, window)

    def _item(self, item: _Item, window: Mapping[str, Any], in_menu: bool) -> None:
        if item.role == "document spreadsheet":
            return  # its cells contain all of its text
        if item.role in ACTIVE or "editable" in item.states:
            place = self._place(item, window, in_menu)
            if place is None or not _usable(item) or not (_said(item) or _writable(item)):
                return
            number = self._number(place)
            role = NAMES.get(item.role, item.role)
            head = " ".join(filter(None, (f"[{number}]", role, _clean(item.name))))
            self._write(head, item)
        elif item.role in SPOKEN:
            said = _said(item)
            known = any(said and said in _said(child) for child in item.children)
            if said and not known and self._place(item, window, in_menu) is not None:
                line = said if item.role != "heading" else f"# {said}"
                if not self._lines or not self._lines[-1].endswith(said):
                    self._lines.append(line)

    def _write(self, head: str, item: _Item) -> None:
        text = item.text.replace("\ufffc", "").rstrip()
        state = _states(item)
        if not text or _clean(text) == _clean(item.name):
            self._lines.append(head + state)
        elif "\n" in text:
            lines = text.splitlines()
            terminal = item.role == "terminal"
            kept = lines[-LONGEST_BLOCK:] if terminal else lines[:LONGEST_BLOCK]
            self._lines.append(f"{head}{state}:")
            # The bar distinguishes text from elements.
            self._lines += [f"| {line[:LONGEST_LINE]}".rstrip() for line in kept]
        else:
            self._lines.append(f"{head}: {_clean(text)}{state}")

    def _row(self, role: str, row: _Item, window: Mapping[str, Any]) -> None:
        """Writes the elements of a bar on one line."""
        parts = []
        for item, name in _leaves(row, ""):
            said = _clean(item.text) if "editable" in item.states else ""
            label = ": ".join(filter(None, (_clean(item.name) or name, said)))
            place = self._place(item, window, in_menu=False)
            if not label or not _usable(item) or (role == "tool bar" and label in IN_MENUS):
                continue
            if item.role == "page tab" and (place is None or _empty(item.box)):
                continue
            if item.role in ACTIVE and place is not None:
                parts.append(f"[{self._number(place)}] {label}{_states(item)}")
            elif item.role in SPOKEN:
                parts.append(label)
        if parts:
            title = {"menu bar": "menus", "page tab list": "tabs", "tool bar": "tools"}
            self._lines.append(f"{title.get(role, role)}: {' '.join(parts)}")

    def _table(self, table: _Item, window: Mapping[str, Any]) -> None:
        """Writes the visible cells of a table, one line per row."""
        rows: dict[int, list[str]] = {}
        for cell, _ in _leaves(table, ""):
            place = self._place(cell, window, in_menu=False)
            if place is None or cell.box is None:
                continue
            words = filter(None, (_clean(cell.name), _clean(cell.text)))
            said = " ".join(dict.fromkeys(words))
            if said:
                part = f"[{self._number(place)}] {said}{_states(cell)}"
                rows.setdefault(cell.box[1], []).append(part)
        self._lines += [" | ".join(rows[top]) for top in sorted(rows)]

    def _number(self, place: ScreenPlace) -> int:
        number = len(self._places) + 1
        self._places[number] = place
        return number

    def _place(self, item: _Item, window: Mapping[str, Any], in_menu: bool) -> ScreenPlace | None:
        """Returns the middle of the visible part of an element, or None if it is invisible."""
        if _empty(item.box):
            return None
        assert item.box is not None
        left, top, width, height = item.box
        right, bottom = min(left + width, self._size[0]), min(top + height, self._size[1])
        left, top = max(left, 0), max(top, 0)
        if right - left <= 1 or bottom - top <= 1:
            return None
        x, y = (left + right) // 2, (top + bottom) // 2
        above = next((each for each in reversed(self._windows) if _holds(each["box"], x, y)), None)
        # An open menu is a separate window, but its items belong to the application.
        if above is None or above["number"] == window["number"]:
            return ScreenPlace(x, y)
        return ScreenPlace(x, y) if in_menu and not above["managed"] else None


def _items(nodes: Iterable[Sequence[Any]]) -> list[_Item]:
    """Returns the applications, from a list in which every node follows its parent."""
    roots: list[_Item] = []
    open_items: list[_Item] = []
    for depth, role, name, text, box, states in nodes:
        if not 0 < depth <= DEEPEST:
            raise ValueError(f"a node lies {depth} deep")
        name, text = _VOLATILE.sub("", str(name)), _VOLATILE.sub("", str(text))
        bounds = (int(box[0]), int(box[1]), int(box[2]), int(box[3])) if box else None
        item = _Item(str(role), name, text, bounds, frozenset(map(str, states)))
        del open_items[max(0, int(depth) - 1) :]
        (open_items[-1].children if open_items else roots).append(item)
        open_items.append(item)
    for root in roots:
        _put_right(root, 0)
    return roots


def _put_right(item: _Item, shift: int) -> None:
    """Corrects LibreOffice's positions: within a window, it forgets the menu bar above.

    Its own elements begin with the root pane, which covers its parent but reports a higher
    position. GTK's elements inside begin with one that covers its parent and reports a position
    lower by the same distance."""
    for child in item.children:
        below = shift
        if item.box is not None and child.box is not None:
            lower = item.box[1] - child.box[1]
            if child.role == "root pane" and _same_size(item.box, child.box) and lower > 0:
                below = lower
            elif shift and _same_size(item.box, child.box) and lower == 0:
                below = 0
        if below and child.box is not None:
            left, top, width, height = child.box
            child.box = (left, top + below, width, height)
        _put_right(child, below)


def _same_size(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    return abs(one[2] - other[2]) <= 2 and abs(one[3] - other[3]) <= 2


def _leaves(item: _Item, name: str) -> Iterable[tuple[_Item, str]]:
    """Yields the elements below an item, with the name of their container."""
    for child in item.children:
        if child.role in ACTIVE or child.role in SPOKEN:
            yield child, name
            name = ""  # only once: the element after a field of that name opens its list
        elif child.role not in ("table", "scroll bar"):
            yield from _leaves(child, _clean(child.name) or name)


def _usable(item: _Item) -> bool:
    """Returns whether an element is enabled; LibreOffice does not report it for cells and
    documents."""
    return bool(item.states & {"sensitive", "editable"}) or item.role in ("table cell", "list item")


def _writable(item: _Item) -> bool:
    return "editable" in item.states or item.role == "terminal"


def _said(item: _Item) -> str:
    text = _clean(item.text)
    return text or _clean(item.name)


def _states(item: _Item) -> str:
    shown = [state for state in SHOWN_STATES if state in item.states]
    if item.role == "table cell" and _OF_SHEET.fullmatch(item.name) and "selected" in shown:
        shown.remove("selected")  # a field of the sheet's tool bar shows the selection: A1:C7
    return f" ({', '.join(shown)})" if shown else ""


def _clean(text: str) -> str:
    return " ".join(text.replace("\ufffc", " ").split())[:LONGEST_LINE]


def _empty(box: tuple[int, int, int, int] | None) -> bool:
    return box is None or box[2] <= 1 or box[3] <= 1


def _near(one: tuple[int, int, int, int] | None, other: Sequence[int]) -> bool:
    return one is not None and all(abs(a - b) <= 40 for a, b in zip(one, other, strict=True))


def _holds(box: Sequence[int], x: int, y: int) -> bool:
    left, top, width, height = box
    return left <= x < left + width and top <= y < top + height
