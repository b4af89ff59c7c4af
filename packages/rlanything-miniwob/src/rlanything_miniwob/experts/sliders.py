"""Pages with sliders; arrow keys move a slider while its handle has the focus."""

from __future__ import annotations

import re
from collections import deque

from rlanything_miniwob.experts.base import (
    Done,
    Expert,
    Screen,
    clicks,
    of_role,
    part,
    position,
    submit,
    tick,
)
from rlanything_miniwob.screen import Element

LEAP = 5
"""PageUp and PageDown move by this share of the range."""


def move(handle: Element, shown: Element, wanted: int, low: int, high: int) -> list[str]:
    """Returns every key that begins a shortest way to the value; [] at the value."""
    value = int(shown.text)
    if value == wanted:
        return []
    if "focused" not in handle.state:
        return clicks([handle])
    away = _presses_to(wanted, low, high)
    keys = _keys(value, low, high)
    return [f"press {key}" for key, to in keys.items() if away[to] < away[value]]


def _keys(value: int, low: int, high: int) -> dict[str, int]:
    leap = (high - low) // LEAP
    return {
        "ArrowRight": min(value + 1, high),
        "ArrowLeft": max(value - 1, low),
        "PageUp": min(value + leap, high),
        "PageDown": max(value - leap, low),
        "Home": low,
        "End": high,
    }


def _presses_to(wanted: int, low: int, high: int) -> dict[int, int]:
    away = {wanted: 0}
    queue = deque([wanted])
    while queue:
        reached = queue.popleft()
        for value in range(low, high + 1):
            if value not in away and reached in _keys(value, low, high).values():
                away[value] = away[reached] + 1
                queue.append(value)
    return away


def sliders(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Moves sliders; each handle is followed by its value."""
    wanted = [int(each) for each in re.findall(r"\d+", utterance)]
    todo = [
        action
        for place, value in enumerate(wanted)
        for action in move(screen[2 * place], screen[2 * place + 1], value, 0, 20)
    ]
    # Finish moving the focused handle before the next one.
    return sorted(todo, key=lambda action: action.startswith("click")) or submit(screen)


def slider_and_checkbox(utterance: str, screen: Screen, done: Done) -> list[str]:
    boxes = of_role(screen, "checkbox")
    wanted = boxes[position(utterance) - 1]
    ticks = tick(boxes, lambda box: box is wanted, "checked")
    moves = move(screen[0], screen[1], int(part(r"Select (-?\d+)", utterance)), -10, 10)
    return [*moves, *ticks] or submit(screen)


EXPERTS: dict[str, Expert] = {
    "form-sequence": slider_and_checkbox,
    "use-slider-2": sliders,
}
