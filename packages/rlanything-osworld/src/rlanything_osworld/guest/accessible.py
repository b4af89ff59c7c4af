"""Reads the windows of applications over AT-SPI, in few round trips.

A tree of some hundred nodes takes thousands of calls. They are sent level by level, all at once, so
that an application answers them without waiting for us in between. An application that hangs costs
one second in total, not one per call.
"""

# pyright: reportMissingImports=false, reportMissingModuleSource=false
from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from gi.repository import Gio, GLib

MOST_NODES = 3000
MOST_CHILDREN = 200
MOST_CELLS = 2000
"""Number of children from which a table counts as a sheet."""
MOST_LEVELS = 40
LONGEST_TEXT = 2000
WAIT_MS = 1500
"""Time limit in milliseconds for an application's answer to a call."""
STATES = {
    1: "active",
    4: "checked",
    7: "editable",
    9: "expandable",
    10: "expanded",
    12: "focused",
    16: "modal",
    23: "selected",
    24: "sensitive",
    25: "showing",
    31: "manages descendants",
    41: "checkable",
}
"""The states that are read, by their bits."""
_PLAIN = {"push button", "menu item", "menu", "label", "icon", "toggle button", "page tab"}
"""Roles whose text only repeats their name."""
_BUTTONS = {"push button", "toggle button", "icon", "radio button", "check box"}
_VALUED = {"slider", "spin button", "progress bar", "scroll bar", "dial"}
Call = tuple[str, str, str, str, "GLib.Variant | None"]
"""A bus name, an object's path, an interface, a method, and its arguments."""


@dataclass
class Node:
    """A node of an accessibility tree."""

    bus: str
    path: str
    depth: int
    role: str = ""
    name: str = ""
    text: str = ""
    box: tuple[int, int, int, int] | None = None
    """Left, top, width and height in pixels of the screen."""
    states: set[str] = field(default_factory=set)
    interfaces: set[str] = field(default_factory=set)
    children: list[Node] = field(default_factory=list)
    grid: bool = False
    """True for a sheet, which has too many cells to walk."""
    pid: int = 0
    """Process of an application."""


class TreeReader:
    """A connection to the bus of accessible applications; only one thread may use it at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.late = False
        """Whether an application did not answer in time, so that the last trees are incomplete."""
        session = Gio.bus_get_sync(Gio.BusType.SESSION)
        enable = GLib.Variant("(ssv)", ("org.a11y.Status", "IsEnabled", GLib.Variant("b", True)))
        _ask_bus(session, "org.freedesktop.DBus.Properties", "Set", enable)
        (address,) = _ask_bus(session, "org.a11y.Bus", "GetAddress", None).unpack()
        flags = Gio.DBusConnectionFlags
        self._bus = Gio.DBusConnection.new_for_address_sync(
            address,
            flags.AUTHENTICATION_CLIENT | flags.MESSAGE_BUS_CONNECTION,
            None,
            None,
        )
        self._context = GLib.MainContext.new()

    def applications(self) -> list[Node]:
        """Returns the trees of all applications: the visible nodes with their children."""
        self.late = False
        root = Node("org.a11y.atspi.Registry", "/org/a11y/atspi/accessible/root", 0)
        level = self._children([root])
        total = 0
        roots = level
        for node, answer in zip(roots, self.calls(list(map(_owner, roots))), strict=True):
            node.pid = answer[0] if answer else 0
        for _depth in range(MOST_LEVELS):
            self._describe(level)
            for node in level:
                node.children = []
            shown = [node for node in level if node.depth == 1 or "showing" in node.states]
            total += len(shown)
            if not shown or total > MOST_NODES:
                break
            for grid in shown:
                if grid.grid:
                    self._cells(grid)
            level = self._children([node for node in shown if _is_open(node)])
        for node in roots:
            _prune(node)
        return roots

    def calls(self, calls: Sequence[Call]) -> list[tuple | None]:
        """Returns the answers to calls that are sent all at once; None for a failed call."""
        answers: list[tuple | None] = [None] * len(calls)
        left = len(calls)

        def answered(bus: Gio.DBusConnection, result: Gio.AsyncResult, index: int) -> None:
            nonlocal left
            left -= 1
            try:
                answers[index] = bus.call_finish(result).unpack()
            except GLib.Error as fault:  # the application is gone, hangs, or has no such method
                answers[index] = None
                self.late |= fault.matches(Gio.io_error_quark(), Gio.IOErrorEnum.TIMED_OUT)

        self._context.push_thread_default()
        try:
            flags = Gio.DBusCallFlags.NO_AUTO_START
            for index, call in enumerate(calls):
                self._bus.call(*call, None, flags, WAIT_MS, None, answered, index)
            while left:
                self._context.iteration(True)
        finally:
            self._context.pop_thread_default()
        return answers

    def _children(self, nodes: list[Node]) -> list[Node]:
        answers = self.calls([_call(node, "Accessible", "GetChildren") for node in nodes])
        level: list[Node] = []
        for node, answer in zip(nodes, answers, strict=True):
            for bus, path in (answer[0] if answer else [])[:MOST_CHILDREN]:
                child = Node(bus, path, node.depth + 1)
                node.children.append(child)
                level.append(child)
        return level

    def _describe(self, nodes: list[Node]) -> None:
        """Fills in the properties of nodes; for visible nodes also their text and position."""
        calls = [_call(node, "Accessible", "GetState") for node in nodes]
        for node, answer in zip(nodes, self.calls(calls), strict=True):
            node.states = _states(answer)
        shown = [node for node in nodes if node.depth == 1 or "showing" in node.states]
        calls = []
        for node in shown:
            calls += [
                _call(node, "Accessible", "GetRoleName"),
                _property(node, "Accessible", "Name"),
                _call(node, "Component", "GetExtents", GLib.Variant("(u)", (0,))),
                _call(node, "Accessible", "GetInterfaces"),
            ]
        answers = self.calls(calls)
        for node, (role, name, box, interfaces) in zip(shown, _groups(answers, 4), strict=True):
            node.role = role[0] if role else ""
            node.name = name[0] if name else ""
            node.box = box[0] if box else None
            node.interfaces = (
                {each.rpartition(".")[2] for each in interfaces[0]} if interfaces else set()
            )
        self._read_texts(shown)
        tables = [node for node in shown if "manages descendants" in node.states]
        calls = [_property(node, "Accessible", "ChildCount") for node in tables]
        for node, answer in zip(tables, self.calls(calls), strict=True):
            node.grid = answer is not None and answer[0] > MOST_CELLS
        nameless = [node for node in shown if not node.name and node.role in _BUTTONS]
        calls = [_property(node, "Accessible", "Description") for node in nameless]
        for node, answer in zip(nameless, self.calls(calls), strict=True):
            node.name = answer[0] if answer else ""

    def _read_texts(self, nodes: list[Node]) -> None:
        written = [
            node
            for node in nodes
            if "Text" in node.interfaces and not (node.name and node.role in _PLAIN)
        ]
        calls = [_property(node, "Text", "CharacterCount") for node in written]
        lengths = [answer[0] if answer else 0 for answer in self.calls(calls)]
        # A terminal is interesting at its end, everything else at its beginning.
        calls = [
            _call(node, "Text", "GetText", _integers(*_part(node, length)))
            for node, length in zip(written, lengths, strict=True)
        ]
        for node, answer in zip(written, self.calls(calls), strict=True):
            node.text = answer[0] if answer else ""
        valued = [node for node in nodes if "Value" in node.interfaces and node.role in _VALUED]
        calls = [_property(node, "Value", "CurrentValue") for node in valued]
        for node, answer in zip(valued, self.calls(calls), strict=True):
            if answer and not node.text and math.isfinite(answer[0]):
                node.text = f"{answer[0]:g}"

    def _cells(self, grid: Node) -> None:
        """Fills in the cells of a sheet that are in use, and their neighbours.

        A sheet has too many children to list. Its first visible cell is found by a point; from
        there, cells are read as far as there is content."""
        corner = self._corner(grid)
        if corner is None:
            return
        rows, columns = 8, 6
        cells: dict[tuple[int, int], Node] = {}
        while True:
            places = [(i, j) for i in range(rows) for j in range(columns) if (i, j) not in cells]
            cells |= self._read_cells(grid, corner, places)
            used = [place for place, cell in cells.items() if cell.text]
            taller = any(row >= rows - 2 for row, _ in used) and rows < 64
            wider = any(column >= columns - 2 for _, column in used) and columns < 32
            if not taller and not wider:
                break
            rows, columns = rows * (2 if taller else 1), columns * (2 if wider else 1)
        kept = _in_use(cells)
        selected = self.calls([_call(grid, "Selection", "GetSelectedChild", _integers(0))])[0]
        if selected:
            # Another object may represent a cell that is already there.
            names = {cell.name for cell in kept}
            selection = self._named([Node(*selected[0], depth=grid.depth + 1)])
            kept += [cell for cell in selection if cell.name not in names]
        calls = [_call(cell, "Component", "GetExtents", GLib.Variant("(u)", (0,))) for cell in kept]
        for cell, box in zip(kept, self.calls(calls), strict=True):
            cell.box = box[0] if box else None
        grid.children = kept

    def _corner(self, grid: Node) -> tuple[int, int] | None:
        """Returns row and column of a sheet's first visible cell."""
        if grid.box is None:
            return None
        point = GLib.Variant("(iiu)", (grid.box[0] + 3, grid.box[1] + 3, 0))
        first, columns = self.calls(
            [
                _call(grid, "Component", "GetAccessibleAtPoint", point),
                _property(grid, "Table", "NColumns"),
            ]
        )
        if not first or not columns or first[0][1].endswith("/null"):
            return None
        call = (*first[0], "org.a11y.atspi.Accessible", "GetIndexInParent", None)
        index = self.calls([call])[0]
        return divmod(index[0], columns[0]) if index else None

    def _read_cells(
        self, grid: Node, corner: tuple[int, int], places: list[tuple[int, int]]
    ) -> dict[tuple[int, int], Node]:
        """Returns the cells at places relative to the corner."""
        calls = [
            _call(grid, "Table", "GetAccessibleAt", _integers(corner[0] + i, corner[1] + j))
            for i, j in places
        ]
        cells = {
            place: Node(*answer[0], depth=grid.depth + 1)
            for place, answer in zip(places, self.calls(calls), strict=True)
            if answer and not answer[0][1].endswith("/null")
        }
        self._named(list(cells.values()))
        return cells

    def _named(self, cells: list[Node]) -> list[Node]:
        """Fills in the content of cells, and returns them."""
        calls = []
        for cell in cells:
            calls += [
                _call(cell, "Accessible", "GetState"),
                _property(cell, "Accessible", "Name"),
                _call(cell, "Text", "GetText", _integers(0, -1)),
            ]
        for cell, (state, name, text) in zip(cells, _groups(self.calls(calls), 3), strict=True):
            cell.role = "table cell"
            cell.states = _states(state)
            cell.name = name[0] if name else ""
            cell.text = text[0][:LONGEST_TEXT] if text else ""
        return cells


def _in_use(cells: dict[tuple[int, int], Node]) -> list[Node]:
    """Returns the cells in the part of a sheet with content, plus one row and one column, and the
    focused cell; row by row."""
    shown = {place: cell for place, cell in cells.items() if "showing" in cell.states}
    used = [place for place, cell in shown.items() if cell.text]
    rows = max((row for row, _ in used), default=-1) + 1
    columns = max((column for _, column in used), default=-1) + 1
    return [
        shown[row, column]
        for row, column in sorted(shown)
        if (row <= rows and column <= columns) or "focused" in shown[row, column].states
    ]


def _ask_bus(session, interface: str, method: str, arguments: GLib.Variant | None) -> GLib.Variant:
    flags = Gio.DBusCallFlags.NONE
    return session.call_sync(
        "org.a11y.Bus", "/org/a11y/bus", interface, method, arguments, None, flags, 10_000, None
    )


def _states(answer: tuple | None) -> set[str]:
    low, high = answer[0] if answer and len(answer[0]) == 2 else (0, 0)
    bits = low | high << 32
    return {name for bit, name in STATES.items() if bits >> bit & 1}


def _integers(*numbers: int) -> GLib.Variant:
    return GLib.Variant(f"({'i' * len(numbers)})", numbers)


def _is_open(node: Node) -> bool:
    """Returns whether to look at the children of a node: not for a closed menu. A menu without a
    name is a pop-up of a page, and is visible only while it is open."""
    if node.grid:
        return False
    return node.role != "menu" or not node.name or bool(node.states & {"selected", "expanded"})


def _prune(node: Node) -> None:
    """Removes the invisible nodes."""
    node.children = [child for child in node.children if "showing" in child.states]
    for child in node.children:
        _prune(child)


def _part(node: Node, length: int) -> tuple[int, int]:
    if node.role == "terminal":
        return max(0, length - LONGEST_TEXT), length
    return 0, min(length, LONGEST_TEXT)


def _call(node: Node, interface: str, method: str, arguments: GLib.Variant | None = None) -> Call:
    return node.bus, node.path, f"org.a11y.atspi.{interface}", method, arguments


def _owner(node: Node) -> Call:
    bus = "org.freedesktop.DBus"
    name = GLib.Variant("(s)", (node.bus,))
    return bus, "/org/freedesktop/DBus", bus, "GetConnectionUnixProcessID", name


def _property(node: Node, interface: str, name: str) -> Call:
    arguments = GLib.Variant("(ss)", (f"org.a11y.atspi.{interface}", name))
    return node.bus, node.path, "org.freedesktop.DBus.Properties", "Get", arguments


def _groups(answers: list, size: int) -> list[list]:
    return [answers[i : i + size] for i in range(0, len(answers), size)]
