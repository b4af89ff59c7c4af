"""Screens in words: what is shown, what is left out, and where the numbers lead."""

from __future__ import annotations

from typing import Any

import pytest

from rlanything_osworld.screen import Screen, ScreenPlace, read_screen

SIZE = (1000, 600)
WHOLE = [0, 0, 1000, 600]
USUAL = ["sensitive", "showing"]


def window(number: int, title: str, box: list[int] = WHOLE, **other: Any) -> dict[str, Any]:
    """A window as the desktop's server lists it."""
    usual = {"active": True, "managed": True, "pid": number, "classes": ""}
    return {"number": number, "title": title, "box": box, **usual, **other}


def node(depth: int, role: str, name: str = "", text: str = "", **other: Any) -> list[Any]:
    """A node as the desktop's server lists it."""
    box, states = other.get("box", [10, 10, 100, 20]), other.get("states", USUAL)
    return [depth, role, name, text, box, states]


def screen(windows: list[dict[str, Any]], *nodes: list[Any]) -> Screen:
    return read_screen({"windows": windows, "nodes": list(nodes)}, SIZE)


def lines(*nodes: list[Any]) -> list[str]:
    """The lines of a screen with one window, without its heading."""
    frame = [node(1, "application", "app"), node(2, "frame", "App", box=WHOLE)]
    return screen([window(1, "App")], *frame, *nodes).text.splitlines()[1:]


def test_an_element_is_a_line_with_its_number_role_name_text_and_states() -> None:
    assert lines(
        node(3, "push button", "OK"),
        node(3, "check box", "Bold", states=[*USUAL, "checked", "focused"]),
        node(3, "entry", "Name", "Ann", states=[*USUAL, "editable"]),
    ) == ["[1] button OK", "[2] check box Bold (focused, checked)", "[3] field Name: Ann"]


def test_a_number_leads_to_the_middle_of_what_is_seen_of_an_element() -> None:
    tree = (
        node(1, "application", "app"),
        node(2, "frame", "App", box=WHOLE),
        node(3, "push button", "In", box=[100, 200, 50, 20]),
        node(3, "push button", "Half out", box=[900, 590, 200, 40]),
    )
    places = screen([window(1, "App")], *tree).places
    assert places == {1: ScreenPlace(125, 210), 2: ScreenPlace(950, 595)}


def test_what_nothing_can_be_done_with_is_left_out() -> None:
    assert (
        lines(
            node(3, "push button", "Off", states=["showing"]),
            node(3, "push button", "Outside", box=[2000, 10, 50, 20]),
            node(3, "push button", "Nowhere", box=[0, 0, 0, 0]),
            node(3, "push button", ""),
            node(3, "filler", "layout"),
            node(3, "separator", "|"),
        )
        == []
    )


def test_closed_menus_stand_once_on_one_line() -> None:
    again = node(3, "menu bar", box=[0, 0, 1000, 0])
    menus = [node(4, "menu", "File"), node(4, "menu", "Edit")]
    assert lines(node(3, "menu bar"), *menus, again, *menus) == ["menus: [1] File [2] Edit"]


def test_an_open_menus_items_are_listed_though_they_lie_in_another_window() -> None:
    bar = [
        node(1, "application", "app"),
        node(2, "frame", "App", box=WHOLE),
        node(3, "menu bar", box=[0, 0, 1000, 20]),
        node(4, "menu", "File", box=[0, 0, 50, 20], states=[*USUAL, "selected"]),
        node(5, "menu item", "Save", box=[0, 30, 80, 20]),
        node(3, "push button", "Under it", box=[0, 60, 80, 20]),
    ]
    popup = window(2, "", [0, 20, 100, 200], managed=False, active=False)
    read = screen([window(1, "App"), popup], *bar).text
    assert read.splitlines() == [
        "== App (active)",
        "menus: [1] File (selected)",
        "[2] menu item Save",
    ]


def test_a_sheet_is_a_line_for_each_row() -> None:
    cells = [
        node(4, "table cell", "A1", "Pen", box=[0, 100, 50, 20], states=["showing", "focused"]),
        node(4, "table cell", "B1", "3", box=[50, 100, 50, 20], states=["showing"]),
        node(4, "table cell", "A2", "", box=[0, 120, 50, 20], states=["showing"]),
    ]
    shown = lines(node(3, "table", "Sheet1"), *cells)
    assert shown == ["[1] A1 Pen (focused) | [2] B1 3", "[3] A2"]


def test_cells_of_a_sheet_do_not_repeat_which_of_them_are_selected() -> None:
    selected = [*USUAL, "selected"]
    shown = lines(
        node(3, "tool bar"),
        node(4, "entry", "", "A1:B1", states=[*USUAL, "editable"]),
        node(3, "table", "Sheet1"),
        node(4, "table cell", "A1", "Pen", box=[0, 100, 50, 20], states=selected),
        node(4, "table cell", "B1", "3", box=[50, 100, 50, 20], states=[*selected, "focused"]),
        node(4, "table cell", "notes.txt", box=[0, 120, 50, 20], states=selected),
    )
    assert shown == [
        "tools: [1] A1:B1",
        "[2] A1 Pen | [3] B1 3 (focused)",
        "[4] notes.txt (selected)",
    ]


def test_of_a_tool_bar_is_left_out_what_menus_have_too() -> None:
    tools = [node(4, "push button", name) for name in ("Save", "Sort Ascending", "Undo", "Bold")]
    shown = lines(node(3, "tool bar"), *tools, node(3, "push button", "Save"))
    assert shown == ["tools: [1] Sort Ascending [2] Bold", "[3] button Save"]


def test_windows_behind_are_headings_that_can_be_clicked() -> None:
    windows = [window(7, "Back", active=False), window(8, "Front")]
    frames = [
        *(node(1, "application", "a"), node(2, "frame", "Back", box=WHOLE)),
        *(node(3, "push button", "Covered"), node(1, "application", "b")),
        *(node(2, "frame", "Front", box=WHOLE), node(3, "push button", "Seen")),
    ]
    read = screen(windows, *frames)
    assert read.text.splitlines() == ["== Front (active)", "[1] button Seen", "== [2] Back"]
    assert read.places[2].window == 7


def test_while_a_dialog_waits_its_application_is_a_heading_only() -> None:
    windows = [
        window(1, "Doc", active=False, pid=5),
        window(2, "Save?", [400, 200, 200, 100], pid=5),
    ]
    frames = [
        *(node(1, "application", "a"), node(2, "frame", "Doc", box=WHOLE)),
        node(3, "push button", "Blocked"),
        node(2, "dialog", "Save?", box=[400, 200, 200, 100], states=[*USUAL, "modal"]),
        node(3, "push button", "Yes", box=[450, 250, 50, 20]),
    ]
    read = screen(windows, *frames).text.splitlines()
    assert read == ["== Save? (active)", "[1] button Yes", "== [2] Doc"]


def test_the_launcher_comes_first_so_that_its_numbers_stay() -> None:
    bar = window(3, "Launcher", [0, 580, 1000, 20], active=False)
    frames = [
        *(node(1, "application", "l"), node(2, "frame", "Launcher", box=[0, 580, 1000, 20])),
        node(3, "push button", "Files", box=[0, 580, 50, 20]),
    ]
    read = screen([bar, window(1, "App", [0, 0, 1000, 580])], *frames).text.splitlines()
    assert read == ["Launcher: [1] Files", "== App (active)"]


def test_text_of_several_lines_cannot_look_like_an_element() -> None:
    shown = lines(node(3, "text", "", "one\n[9] button two\n", states=[*USUAL, "editable"]))
    assert shown == ["[1] field:", "| one", "| [9] button two"]


def test_of_a_terminal_the_end_is_shown() -> None:
    text = "\n".join(f"line {number}" for number in range(100))
    shown = lines(node(3, "terminal", "Terminal", text))
    assert shown[0] == "[1] terminal Terminal:"
    assert (shown[1], shown[-1]) == ("| line 76", "| line 99")


def test_what_differs_from_one_time_to_the_next_is_left_out() -> None:
    assert lines(
        node(3, "statusbar"),
        node(4, "label", "3 items"),
        node(4, "label", "Free space: 511.9 MiB (Total: 512.0 MiB)"),
        node(3, "page tab list"),
        node(4, "page tab", "page.html - Memory usage - 22.1 MB"),
    ) == ["statusbar: 3 items", "tabs: [1] page.html"]


def test_places_in_libreoffice_are_put_right() -> None:
    # As read from Calc: its own part says to begin at the window's top, GTK's fields do not.
    tree = [
        node(1, "application", "soffice"),
        node(2, "frame", "App", box=WHOLE),
        node(3, "panel", box=[0, 44, 1000, 500]),
        node(4, "root pane", "App", box=[0, 19, 1000, 500]),
        node(5, "push button", "Bold", box=[100, 60, 20, 20]),
        node(5, "panel", box=[4, 99, 162, 34]),
        node(6, "panel", box=[4, 124, 162, 34]),
        node(7, "text", "", "A1", box=[4, 124, 126, 34], states=[*USUAL, "editable"]),
    ]
    places = screen([window(1, "App")], *tree).places
    assert places == {1: ScreenPlace(110, 95), 2: ScreenPlace(67, 141)}


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"windows": [], "nodes": [[1]]},
        {"windows": [], "nodes": [node(99, "frame")]},
        {"windows": [], "nodes": [node(0, "frame")]},
        {"windows": [{}], "nodes": []},
        {"windows": [window(1, "A", [1])], "nodes": []},
    ],
)
def test_a_tree_of_another_shape_is_refused(tree: dict[str, Any]) -> None:
    nodes = [node(1, "application"), node(2, "frame", "A", box=WHOLE), node(3, "icon", "x")]
    if tree.get("windows") and "box" in tree["windows"][0]:
        tree = {**tree, "nodes": nodes}
    with pytest.raises((KeyError, TypeError, ValueError)):
        read_screen(tree, SIZE)
