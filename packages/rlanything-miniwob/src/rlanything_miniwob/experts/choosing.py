"""Pages with several things to choose and a button to submit the choice."""

from __future__ import annotations

import re
from collections.abc import Callable

from rlanything_miniwob.experts.base import (
    Done,
    Expert,
    Screen,
    clicks,
    fields,
    fill,
    of_role,
    part,
    quoted,
    saying,
    submit,
    tick,
)
from rlanything_miniwob.experts.words import same_meaning
from rlanything_miniwob.screen import Element

OPEN_LIST = "▾"


def _wanted(utterance: str) -> list[str]:
    names = part(r"^Select (?:words similar to )?(.*?) (?:from the|and click Submit)", utterance)
    return [] if names == "nothing" else names.split(", ")


def checkboxes(same: Callable[[str, str], bool]) -> Expert:
    def expert(utterance: str, screen: Screen, done: Done) -> list[str]:
        names = _wanted(utterance)
        boxes = of_role(screen, "checkbox")
        wrong = tick(boxes, lambda box: any(same(box.text, name) for name in names), "checked")
        return wrong or submit(screen)

    return expert


def option(utterance: str, screen: Screen, done: Done) -> list[str]:
    radios = [radio for radio in of_role(screen, "radio") if radio.text in _wanted(utterance)]
    checked = any("checked" in radio.state for radio in radios)
    return submit(screen) if checked else clicks(radios)


def from_list(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Clicks what differs: if several options may be selected, selecting one again deselects it."""
    select = of_role(screen, "select")[0]
    wanted = _wanted(utterance)
    chosen = [name for name in (select.value or "").split(", ") if name]
    wrong = [name for name in chosen if name not in wanted] if "scroll list" in utterance else []
    missing = [name for name in wanted if name not in chosen]
    return [f"select [{select.number}] {name}" for name in wrong + missing] or submit(screen)


def shades(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Chooses shades by their strongest component: red, green or blue."""
    place = ("red", "green", "blue").index(part(r"shades of (\w+)", utterance))

    def is_shade(box: Element) -> bool:
        parts = [int(box.text[at : at + 2], 16) for at in (1, 3, 5)]
        return parts.index(max(parts)) == place

    boxes = [each for each in screen if re.fullmatch(r"#[0-9a-f]{6}", each.text)]
    return tick(boxes, is_shade, "selected") or submit(screen)


def odd_or_even(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Chooses odd or even for each number, which is between its two buttons; one can be
    selected."""
    numbers = [each for each in screen if re.fullmatch(r"-?\d+", each.text)]
    right = [screen[each.number - 2 if int(each.text) % 2 else each.number] for each in numbers]
    todo = [button for button in right if "selected" not in button.state]
    # A wrongly marked number comes first.
    todo.sort(key=lambda button: not _other_is_selected(screen, button))
    return clicks(todo) or submit(screen)


def _other_is_selected(screen: Screen, button: Element) -> bool:
    other = screen[button.number + (1 if button.text == "Odd" else -3)]
    return "selected" in other.state


def autocomplete(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Chooses a suggestion; suggestions are listed after the Submit button."""
    field = fields(screen)[0]
    start, end = [*quoted(utterance), ""][:2]

    def fits(text: str | None) -> bool:
        return text is not None and text.startswith(start) and text.endswith(end)

    button = saying(screen, "Submit")[0]
    suggested = [each for each in screen[button.number :] if fits(each.text)]
    if suggested:
        return clicks(suggested)
    return clicks([button]) if fits(field.value) else [f"type [{field.number}] {start}"]


def spinner(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Sets a spinner, whose arrows count from 0 where its field has no number. While the field has
    the focus, the arrow keys act like its arrows."""
    field = fields(screen)[0]
    number = re.fullmatch(r"-?[0-9]{1,9}", field.value or "0")
    missing = int(part(r"Select (-?\d+)", utterance)) - (int(number[0]) if number else 0)
    if number and missing == 0:
        return submit(screen)
    name, key = ("spinner-up", "ArrowUp") if missing > 0 else ("spinner-down", "ArrowDown")
    arrows = clicks(each for each in screen if name in each.text)
    return [*arrows, f"press {key}"] if "focused" in field.state else arrows


def dropdown_and_button(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Chooses from a drawn list: its choice, its arrow, and its options between them and the next
    field."""
    wanted = part(r"Choose (.*?) from", utterance)
    arrow = saying(screen, OPEN_LIST)[0]
    field = next(each for each in screen[arrow.number :] if each.role == "textbox")
    offered = screen[arrow.number : field.number - 1]
    if offered:
        return clicks(saying(offered, wanted))
    choice = screen[arrow.number - 2]
    if choice.text != wanted:
        return clicks([choice, arrow])
    return clicks(each for each in of_role(screen, "button") if each.text in quoted(utterance))


def radio_and_field(utterance: str, screen: Screen, done: Done) -> list[str]:
    first, second = (int(each) for each in re.findall(r"(\d)(?:st|nd|rd)", utterance))
    radio = of_role(screen, "radio")[first - 1]
    number = quoted(utterance)[0]
    wanted = [
        (field, number if place == second else "")
        for place, field in enumerate(fields(screen), start=1)
    ]
    # Fields that should be empty come first.
    todo = fill(sorted(wanted, key=lambda pair: pair[1]))
    if "checked" not in radio.state:
        todo += clicks([radio])
    return todo or submit(screen)


EXPERTS: dict[str, Expert] = {
    "choose-list": from_list,
    "click-checkboxes": checkboxes(str.__eq__),
    "click-checkboxes-large": checkboxes(str.__eq__),
    "click-checkboxes-soft": checkboxes(same_meaning),
    "click-checkboxes-transfer": checkboxes(str.__eq__),
    "click-option": option,
    "click-scroll-list": from_list,
    "click-shades": shades,
    "form-sequence-2": radio_and_field,
    "form-sequence-3": dropdown_and_button,
    "odd-or-even": odd_or_even,
    "use-autocomplete": autocomplete,
    "use-autocomplete-nodelay": autocomplete,
    "use-spinner": spinner,
}
