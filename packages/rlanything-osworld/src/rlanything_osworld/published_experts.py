"""Experts of OSWorld's own tasks: how some are done with mouse and keyboard, by their ids.

Each is a sequence of actions for small models, like those of the generated tasks. They were found
on Debian 12's applications.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlanything.records import Task
from rlanything_osworld.families.base import Move, moves
from rlanything_osworld.goals import OWN

_TERMINAL = "click [Terminal]"
_OWN = (None, OWN, "evaluator1")
"""Names of a task's own goal; the last is the paper's."""


def published_moves(task: Task) -> tuple[Move, ...] | None:
    """Returns an expert's moves for the goal of one of OSWorld's own tasks; None: not known."""
    if task.data["example"]["evaluator"].get("func") == "infeasible":
        return moves(end="fail")
    goal = task.data.get("chosen", {}).get("goal")
    task_id = task.data["example"].get("id", "")
    return EXPERTS.get(task_id) if goal in _OWN else VARIANTS.get((task_id, goal))


def in_terminal(expert: Sequence[Move]) -> bool:
    """Returns whether an expert does its task by a command that it types."""
    return expert[0].action == _TERMINAL


def _visit(page: str) -> tuple[str, ...]:
    return "press ctrl+l", f"type chrome://{page}", "press enter"


def _typed(command: str) -> tuple[Move, ...]:
    return moves(_TERMINAL, Move(f"type {command}", needs="$"), "press enter")


def _preferences(*actions: str) -> tuple[Move, ...]:
    """Returns moves in GIMP's dialog. The items of its menus cannot be read, so keys choose one."""
    keys = (Move("press alt+e", needs="] Windows"), "press p", "press p", "press enter")
    return moves(*keys, *actions, "click [button OK]")


def _settings(*actions: str) -> tuple[Move, ...]:
    """Returns moves in VLC's dialog."""
    return moves("press ctrl+p", *actions, "click [button Save]")


def _qt(*actions: str) -> tuple[Move, ...]:
    """Returns moves on the page of VLC's advanced settings that is about its own interface."""
    way = (
        "click [radio All]",
        "scroll down [item Hotkeys settings]",
        "click [item Main interfaces]",
    )
    page = ("press right", "click [item Qt^2]", "scroll down [check box Embed the file browser]")
    return _settings(*way, *page, *actions)


def _auto_save(minutes: int) -> tuple[Move, ...]:
    return moves(
        "press escape",  # close the choice of a template
        "press alt+f12",
        "click [Load/Save]",
        "press right",
        "press down",
        "click [check box Save AutoRecovery information]",
        "click [spin button: 10]",
        "press ctrl+a",
        f"type {minutes}",
        "click [button OK]",
    )


EXPERTS: dict[str, tuple[Move, ...]] = {
    # Chromium
    "030eeff7-b492-4218-b312-701ec99ee0cc": moves(
        *_visit("settings/cookies"),
        'click [toggle Send a "Do Not Track" request]',
        "click [button Confirm]",
        "press alt+f4",  # it writes its settings when it ends
    ),
    "12086550-11c0-466b-b367-1d9e75b3910e": moves(*_visit("password-manager/passwords")),
    "2ad9387a-65d8-4e33-ad5b-7580065a27ca": moves(
        "press ctrl+shift+o",
        "click [button Organize]",
        "click [menu item Add new folder]",
        "type Favorites",
        "press enter",
        "press alt+f4",
    ),
    "2ae9ba84-3a0d-4d4c-8338-3a1478dc5fe3": moves(
        *_visit("settings/manageProfile"),
        "click [field Name]",
        "press ctrl+a",
        "type Thomas",
        "press tab",
    ),
    "9656a811-9b5b-4ddf-99c7-5117bcef0626": moves(
        *_visit("settings/security"), "click [radio Enhanced protection]"
    ),
    "af630914-714e-4a24-a7bb-f9af687d3b91": moves(
        *_visit("settings/fonts"), "click [slider Font size]", "press end"
    ),
    # GIMP
    "7767eef2-56a3-4cea-8c9f-48c070c7d65b": _preferences(*["press down"] * 8, "click [Light]"),
    "7b7617bd-57cc-468e-9c91-40c4ec2bcb3d": _preferences(
        "double_click [spin button: 5]", "type 100"
    ),
    "d52d6308-ec58-42b7-a2c9-de80e4837b2b": moves(Move("press tab", needs="] Windows")),
    # The file manager
    "e0df059f-28a6-4169-924f-b9623e7184cc": moves(
        "click [Files]",
        "double_click [icon: Desktop]",
        "click [icon: todo_list_Jan_1]",
        "press f2",
        "press ctrl+a",
        "type todo_list_Jan_2",
        "press enter",
    ),
    # Impress
    "2cd43775-7085-45d8-89fa-9e35c0a915cf": _auto_save(3),
    "ef9d12bd-bcee-4ba0-a40e-918400f43ddf": moves("click [View]", "click [menu item Slide Pane]"),
    # Settings, in a terminal: GNOME's program that shows them is not on the desktop
    "3ce045a0-877b-42aa-8d2c-b4a863336ab8": _typed(
        "gsettings set org.gnome.desktop.interface text-scaling-factor 1.5"
    ),
    "a4d98375-215b-4a4d-aee9-3d4370fccc41": _typed(
        "gsettings set org.gnome.desktop.screensaver lock-enabled true"
    ),
    "bedcedc4-4d72-425e-ad62-21960b11fe0d": _typed(
        "gsettings set org.gnome.desktop.session idle-delay 0"
    ),
    "f9be0997-4b7c-45c5-b05c-4612b44a6118": _typed(
        "gsettings set org.gnome.desktop.notifications show-banners false"
    ),
    # VLC
    "215dfd39-f493-4bc3-a027-8a97d72c61bf": _qt("click [check box Display background cone]"),
    "8ba5ae7a-5ae5-4eab-9fcc-5dd4fe3abf89": _settings(
        "click [check box Input / Codecs]",
        "click [field Record directory]",
        "press ctrl+a",
        "type /home/user/Desktop",
    ),
    # A field that does not fit into the dialog is reached from the box next to it.
    "9195653c-f4aa-453d-aa95-787f6ccfaae9": _qt(
        "double_click [check box Allow automatic icon changes]",
        "press tab",
        "press ctrl+a",
        "type 200",
    ),
    "a5bbbcd5-b398-4c91-83d4-55e1e31bbb81": _settings("click [check box Start in minimal view]"),
    "d06f0d4d-2cd5-4ede-8de9-598629438c6e": _qt(
        "double_click [check box Show unimportant error]",
        "press tab",
        "press ctrl+a",
        "type 0;0;0;20;20;20;40;40;40;60;60;60",
    ),
    "f3977615-2b45-4ac5-8bba-80c17dbe2a37": _settings(
        "click [check box Use only one instance when started]"
    ),
}
"""Moves to a task's own goal, by the task's id."""
VARIANTS = {("2cd43775-7085-45d8-89fa-9e35c0a915cf", "evaluator2"): _auto_save(4)}
"""Moves to the other goals that the paper prepared, by the task's id and the goal."""
