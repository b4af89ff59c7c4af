"""Screen points in an action's text, to be drawn on the screenshot that the agent saw. Elements
named by number are skipped: no record has their position."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlanything.engines.base import ModelError
from rlanything.engines.images import MOST_PIXELS, png_size
from rlanything.plugins import PluginError, load_plugin
from rlanything.runs.paths import IMAGES, run_path

MOST_POINTS = 20
"""Largest number of points per action; code may name any number."""
_HEADER = 32
Units = Mapping[str, tuple[int, int] | None]
"""Results of `pointer_size`, by world."""
_WORDS = re.compile(r"click (\d{1,4}) (\d{1,4})")
_NUMBER = r"(\d{1,5}(?:\.\d{1,3})?)"
_CALL = re.compile(
    r"\b(?:click|doubleClick|tripleClick|rightClick|middleClick|moveTo|dragTo|mouseDown|mouseUp)"
    rf"\(\s*(?:x\s*=\s*)?{_NUMBER}\s*,\s*(?:y\s*=\s*)?{_NUMBER}"
)


def points_of(action: str) -> list[tuple[float, float]]:
    """Returns x and y of each point in an action, in order: those of `click x y`, of an object with
    `x` and `y` (computer_13), of pyautogui calls."""
    if match := _WORDS.fullmatch(action):
        return [(float(match[1]), float(match[2]))]
    if action.startswith("{"):
        return _point_of(action)
    return [(float(x), float(y)) for x, y in _CALL.findall(action)[:MOST_POINTS]]


def pointer_size(domain: str) -> tuple[int, int] | None:
    """Returns the width and height of the coordinate system, as the class of an installed domain
    declares; None: pixels of the screenshot."""
    if ":" in domain:  # a report never runs a recipe's code
        return None
    with suppress(PluginError):
        return getattr(load_plugin("domain", domain), "pointer_size", None)
    return None


def pointed_at(
    action: str | None, directory: Path, image: str | None, units: tuple[int, int] | None
) -> list[tuple[float, float]]:
    """Returns an action's points on a run's screenshot, as shares of its width and height; `units`:
    result of `pointer_size`."""
    named = [] if action is None else points_of(action)
    if not named or image is None:
        return []
    size = units or _size(run_path(directory, IMAGES, image))
    if size is None:
        return []
    shares = [(round(x / size[0], 4), round(y / size[1], 4)) for x, y in named]
    return [(x, y) for x, y in shares if x < 1 and y < 1]


def _point_of(text: str) -> list[tuple[float, float]]:
    try:
        action = json.loads(text)
    except (ValueError, RecursionError):
        return []
    given: Mapping[str, Any] = action
    if isinstance(parameters := action.get("parameters"), dict):
        given = parameters
    x, y = given.get("x"), given.get("y")
    if not (isinstance(x, int | float) and isinstance(y, int | float)):
        return []
    return [(float(x), float(y))] if min(x, y) >= 0 and max(x, y) < MOST_PIXELS else []


def _size(path: Path) -> tuple[int, int] | None:
    """Returns the width and height of a screenshot in pixels; None if it cannot be read."""
    with suppress(OSError, ModelError), open(path, "rb") as file:
        height, width = png_size(file.read(_HEADER), path.name)
        return width, height
    return None
