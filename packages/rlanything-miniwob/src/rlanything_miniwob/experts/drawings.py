"""Pages with drawings that differ in kind, color and size."""

from __future__ import annotations

import re

from rlanything_miniwob.experts.base import (
    Done,
    Expert,
    Screen,
    clicks,
    of_role,
    saying,
)
from rlanything_miniwob.screen import Element

SHAPES = {"circle": "circle", "rect": "rectangle", "polygon": "triangle"}
SIZES = {"small": "10px", "large": "20px"}
GRID = 5
"""Number of points in a row, and in a column."""


def click_shape(utterance: str, screen: Screen, done: Done) -> list[str]:
    description = utterance.removeprefix("Click on a ")
    return clicks(each for each in _drawn(screen) if _fits(each, description))


def count_shape(utterance: str, screen: Screen, done: Done) -> list[str]:
    description = utterance.removeprefix("How many ").removesuffix("s are there?")
    count = sum(_fits(each, description) for each in _drawn(screen))
    return clicks(each for each in of_role(screen, "button") if each.text == str(count))


def identify_shape(utterance: str, screen: Screen, done: Done) -> list[str]:
    drawing = _drawn(screen)[0]
    shape = SHAPES.get(drawing.role)
    kind = shape or ("number" if drawing.text.isdigit() else "letter")
    return clicks(saying(screen, kind.capitalize()))


def _drawn(screen: Screen) -> list[Element]:
    return [each for each in of_role(screen, "text", *SHAPES) if each.state]


def _fits(drawing: Element, description: str) -> bool:
    """Returns whether a drawing matches: the last word is its kind; a size and a color may come
    before it."""
    shape = SHAPES.get(drawing.role)
    if shape:
        names, color = ("item", "shape", shape), drawing.text
    else:
        sort = "digit" if drawing.text.isdigit() else "letter"
        names, color = ("item", sort, drawing.text), drawing.state[0]
    *looks, name = description.split()
    return name in names and all(
        SIZES[look] in drawing.state if look in SIZES else look == color for look in looks
    )


def grid_coordinate(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Clicks a point. Points are listed by column from the left, each column from the top."""
    x, y = map(int, re.findall(r"-?\d+", utterance))
    points = of_role(screen, "circle")
    return clicks([points[(x + GRID // 2) * GRID + GRID // 2 - y]])


EXPERTS: dict[str, Expert] = {
    "click-shape": click_shape,
    "count-shape": count_shape,
    "grid-coordinate": grid_coordinate,
    "identify-shape": identify_shape,
}
