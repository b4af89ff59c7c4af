"""Converts the screen of OSWorld's server to the format of our own server's `tree`.

Its XML lacks the order of windows, which a script of ours reads from the screen. It also contains
more: invisible elements, every empty cell of a sheet, and GNOME's panel and dock with a clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from rlanything_osworld.screen import ACTIVE, DEEPEST, LAUNCHER

LARGEST_TREE = 32 * 2**20
LONGEST_TEXT = 2000
_NAMESPACE = "https://accessibility.ubuntu.example.org/ns"
_STATE, _PLACE, _VALUE = (f"{{{_NAMESPACE}/{name}}}" for name in ("state", "component", "value"))
_PAIR = re.compile(r"\((-?\d+), (-?\d+)\)")
_CLOCK = re.compile(r"\d[:\u2236]\d\d")
_VALUED = ("slider", "spin button", "progress bar", "dial")
SHELL = "gnome-shell"
_GUEST = Path(__file__).with_name("guest")
_SCRIPT = """
import json, sys, types
for name, source in {sources!r}.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(source, vars(module))
import windows, busy
{task}
"""
LISTING = """
shown = [window.to_json() for window in windows.listed()]
print(json.dumps([shown, busy.busy({window["pid"] for window in shown})]))
"""
"""Prints the windows, and whether programs are at work."""


def window_script(task: str) -> str:
    """Returns Python for a machine with Xlib, which pyautogui needs as well: `task`, with the
    modules `windows` and `busy` of our own server."""
    names = ("windows", "busy")
    sources = {name: (_GUEST / f"{name}.py").read_text(encoding="utf-8") for name in names}
    return _SCRIPT.format(sources=sources, task=task)


def foreign_tree(
    xml: str, windows: Sequence[dict[str, Any]], size: tuple[int, int]
) -> dict[str, Any]:
    """Returns windows and nodes in the format of our own server's `tree`.

    `xml`: the server's accessibility tree. `windows`: the output of `LISTING`, from the lowest to
    the topmost. Raises `ValueError`, `KeyError` or `TypeError` for another format."""
    if len(xml) > LARGEST_TREE or "<!DOCTYPE" in xml:
        raise ValueError("the accessibility tree is too large, or defines entities")
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError as fault:
        raise ValueError(f"the accessibility tree is no XML ({fault})") from fault
    # Windows that compositors put over the whole screen show what is below them.
    whole = [0, 0, *size]
    seen = [each for each in windows if each["managed"] or list(each["box"]) != whole]
    nodes: list[list[Any]] = []
    for application in root:
        if application.get("name") == SHELL:
            bar = list(_bar(application, size))
            nodes += [[1, "application", SHELL, "", None, []]]
            nodes += [[2, "frame", LAUNCHER, "", whole, ["showing"]], *bar]
            # Each element of the bar is above all windows, and the gaps between them are empty.
            seen += [_window("", node[4], managed=False) for node in bar]
            seen.append(_window(LAUNCHER, [0, 0, 0, 0], managed=True))
        else:
            nodes += _nodes(application, 1)
    return {"windows": seen, "nodes": nodes}


def _window(title: str, box: list[int], managed: bool) -> dict[str, Any]:
    return {
        **{"number": 0, "title": title, "classes": SHELL, "box": box},
        **{"active": False, "pid": 0, "managed": managed},
    }


def _bar(shell: Element, size: tuple[int, int]) -> Iterator[list[Any]]:
    """Yields the elements of GNOME's panel and dock, except those that cover much of the screen."""
    for _, role, name, text, box, states in _nodes(shell, 1):
        small = box is not None and box[2] * box[3] < size[0] * size[1] // 4
        if role in ACTIVE and small and "showing" in states:
            name = "Clock" if _CLOCK.search(name) else name
            yield [3, role, name, "" if _CLOCK.search(text) else text, box, states]


def _nodes(element: Element, depth: int, sheet: bool = False) -> Iterator[list[Any]]:
    """Yields an element and its visible descendants, each node after its parent. `sheet`: whether
    it is part of a sheet."""
    node = _node(element, depth)
    yield node
    closed = node[1] == "menu" and node[2] and not {"selected", "expanded"} & {*node[5]}
    if depth == DEEPEST or closed:
        return  # a closed menu shows nothing; menus of pages have no name
    children = [child for child in element if child.get(f"{_STATE}showing") == "true"]
    sheet = sheet or node[1] == "document spreadsheet"
    if sheet and node[1] == "table":
        children = _in_use(children)
    for child in children:
        yield from _nodes(child, depth + 1, sheet)


def _node(element: Element, depth: int) -> list[Any]:
    role = element.tag.replace("-", " ")
    names = (key.removeprefix(_STATE) for key in element.attrib if key.startswith(_STATE))
    states = sorted(re.sub("[_-]", " ", name) for name in names)
    text = element.text or ""
    if role in _VALUED and not text and (value := element.get(f"{_VALUE}value")):
        text = f"{float(value):g}"
    # A terminal is interesting at its end, everything else at its beginning.
    text = text[-LONGEST_TEXT:] if role == "terminal" else text[:LONGEST_TEXT]
    return [depth, role, element.get("name", ""), text, _box(element), states]


def _box(element: Element) -> list[int] | None:
    pairs = [
        _PAIR.fullmatch(element.get(f"{_PLACE}{name}", "")) for name in ("screencoord", "size")
    ]
    numbers = [int(number) for pair in pairs if pair is not None for number in pair.groups()]
    return numbers if len(numbers) == 4 else None


def _in_use(cells: list[Element]) -> list[Element]:
    """Returns the cells of a sheet up to one row and one column beyond the content, and the focused
    cell."""
    boxes = [_box(cell) or [0, 0, 0, 0] for cell in cells]
    used = [box for cell, box in zip(cells, boxes, strict=True) if cell.text]
    ends = [max((box[side] + box[side + 2] for box in used), default=0) for side in (0, 1)]
    limits = [
        min((box[side] for box in boxes if box[side] >= ends[side]), default=0) for side in (0, 1)
    ]
    return [
        cell
        for cell, box in zip(cells, boxes, strict=True)
        if (box[0] <= limits[0] and box[1] <= limits[1]) or cell.get(f"{_STATE}focused") == "true"
    ]
