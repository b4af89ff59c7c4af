"""Pages with a color picker, whose field accepts the color's number."""

from __future__ import annotations

from rlanything_miniwob.experts.base import (
    Done,
    Expert,
    Screen,
    clicks,
    fields,
    part,
    saying,
)

NAMES = {
    "aqua": "00FFFF",
    "black": "000000",
    "blue": "0000FF",
    "gold": "FFD700",
    "gray": "808080",
    "green": "008000",
    "lime": "00FF00",
    "magenta": "FF00FF",
    "maroon": "800000",
    "navy": "000080",
    "olive": "808000",
    "orange": "FFA500",
    "pink": "FFC0CB",
    "purple": "800080",
    "red": "FF0000",
    "silver": "C0C0C0",
    "teal": "008080",
    "white": "FFFFFF",
    "yellow": "FFFF00",
}


def pick_color(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Picks a color. The open picker covers the button, but keys still reach it."""
    number = part(r"#([0-9a-f]{6})", utterance).upper()
    wanted = number or NAMES[part(r"Select (\w+) with", utterance)]
    field, button = fields(screen)[0], saying(screen, "Submit")[0]
    if (field.value or "").upper() != wanted:
        return [f"type [{field.number}] {wanted}"]
    if "focused" in button.state:
        return ["press Enter"]
    return ["press Tab"] if "focused" in field.state else clicks([field])


EXPERTS: dict[str, Expert] = {"use-colorwheel": pick_color, "use-colorwheel-2": pick_color}
