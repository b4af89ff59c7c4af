"""What OSWorld's own server says of a screen reads as what ours says."""

from __future__ import annotations

from typing import Any

import pytest

from rlanything_osworld.foreign_tree import foreign_tree
from rlanything_osworld.screen import read_screen

SIZE = (1000, 600)
NAMESPACES = " ".join(
    f'xmlns:{short}="https://accessibility.ubuntu.example.org/ns/{name}"'
    for short, name in (("st", "state"), ("cp", "component"), ("val", "value"))
)


def element(
    tag: str,
    name: str = "",
    inside: str = "",
    box: tuple[int, int, int, int] = (10, 10, 50, 20),
    states: str = "showing sensitive",
    other: str = "",
) -> str:
    """One element as the server writes it."""
    said = " ".join(f'st:{state}="true"' for state in states.split())
    place = f'cp:screencoord="{box[:2]}" cp:size="{box[2:]}"'
    return f'<{tag} name="{name}" {said} {place} {other}>{inside}</{tag}>'


def window(title: str, box: tuple[int, int, int, int], **other: Any) -> dict[str, Any]:
    usual = {"number": 7, "active": True, "managed": True, "pid": 1, "classes": ""}
    return {"title": title, "box": list(box), **usual, **other}


def read(windows: list[dict[str, Any]], *applications: str) -> str:
    xml = f"<desktop-frame {NAMESPACES}>{''.join(applications)}</desktop-frame>"
    return read_screen(foreign_tree(xml, windows, SIZE), SIZE).text


FRAME = (0, 40, 900, 500)


def application(*inside: str) -> str:
    frame = element("frame", "App", "".join(inside), FRAME, "showing active")
    return element("application", "app", frame, states="")


def test_elements_are_those_on_the_screen_with_their_states_and_values() -> None:
    closed = element("menu", "File", element("menu-item", "Save"))
    opened = element("menu", "Edit", element("menu-item", "Undo"), states="showing selected")
    assert read(
        [window("App", FRAME)],
        application(
            element("push-button", "OK", box=(10, 100, 50, 20)),
            element("push-button", "Later", states="sensitive"),
            element("text", "Name", "Ann", (10, 130, 50, 20), "showing editable focused"),
            element("slider", "Size", box=(10, 160, 50, 20), other='val:value="3.0"'),
            element("menu-bar", "", closed + opened, (0, 60, 300, 20)),
        ),
    ).splitlines() == [
        "== App (active)",
        "[1] button OK",
        "[2] field Name: Ann (focused)",
        "[3] slider Size: 3",
        "menus: [4] File",
        "[5] menu item Undo",
    ]


def test_a_sheet_is_shown_as_far_as_it_is_in_use() -> None:
    cells = "".join(
        element(
            "table-cell",
            f"{'ABCDEF'[column]}{row + 1}",
            "7" if (row, column) == (1, 1) else "",
            (100 * column, 60 + 20 * row, 100, 20),
            "showing focused" if (row, column) == (5, 5) else "showing",
        )
        for row in range(6)
        for column in range(6)
    )
    table = element("table", "Sheet", cells, FRAME)
    lines = read([window("App", FRAME)], application(element("document-spreadsheet", "", table)))
    assert lines.splitlines()[1:] == [
        "[1] A1 | [2] B1 | [3] C1",
        "[4] A2 | [5] B2 7 | [6] C2",
        "[7] A3 | [8] B3 | [9] C3",
        "[10] F6 (focused)",
    ]


def test_gnomes_panel_and_dock_are_the_launcher_and_no_clock_is_read() -> None:
    stage = element(
        "window",
        "Main stage",
        element("menu", "Activities", box=(0, 0, 80, 30))
        + element("menu", "Nov 23 09:15", box=(400, 0, 90, 30))
        + element("push-button", "Files", box=(910, 100, 60, 60))
        + element("push-button", "Workspace", box=(0, 0, 1000, 600)),
        (0, 0, 1000, 600),
    )
    shell = element("application", "gnome-shell", stage, states="")
    overlay = window("", (0, 0, 1000, 600), managed=False, active=False)
    assert read(
        [window("App", FRAME), overlay], application(element("push-button", "OK")), shell
    ).splitlines() == ["Launcher: [1] Activities [2] Clock [3] Files", "== App (active)"]
    beside = element("push-button", "OK", box=(100, 100, 50, 20))
    assert "[4] button OK" in read([window("App", FRAME), overlay], application(beside), shell)


@pytest.mark.parametrize(
    "xml", ["", "<a", "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", f"<a>{'x' * (32 * 2**20)}</a>"]
)
def test_what_is_no_tree_is_refused(xml: str) -> None:
    with pytest.raises(ValueError, match="accessibility tree"):
        foreign_tree(xml, [], SIZE)
