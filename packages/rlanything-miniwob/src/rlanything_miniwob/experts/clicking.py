"""Pages that show the right thing to click."""

from __future__ import annotations

import re

from rlanything_miniwob.experts.base import (
    Done,
    Expert,
    Screen,
    clicks,
    fields,
    of_role,
    part,
    position,
    quoted,
    saying,
)

COLORS = {
    "red": "#ff0000",
    "blue": "#0000ff",
    "olive": "#808000",
    "lime": "#00ff00",
    "black": "#000000",
    "white": "#ffffff",
    "grey": "#808080",
    "purple": "#800080",
    "orange": "#ffa500",
    "yellow": "#ffff00",
    "cyan": "#00ffff",
    "pink": "#ffc0cb",
    "magenta": "#ff00ff",
}
WIDGETS = {"text": "textbox"}
"""Roles of the widgets that have other names on the page."""
WAIT = "scroll down"
"""An action without effect that waits for a second."""


def named(role: str) -> Expert:
    """Returns an expert that clicks elements of a role with the quoted name."""

    def expert(utterance: str, screen: Screen, done: Done) -> list[str]:
        return clicks(each for each in of_role(screen, role) if each.text in quoted(utterance))

    return expert


def only_button(utterance: str, screen: Screen, done: Done) -> list[str]:
    return clicks(of_role(screen, "button"))


def button_one_or_two(utterance: str, screen: Screen, done: Done) -> list[str]:
    return clicks(saying(screen, part(r"button (\w+)", utterance)))


def button_sequence(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Clicks the buttons in order; the screen does not show which ones were clicked."""
    wanted = [
        action
        for name in re.findall(r"button (\w+)", utterance)
        for action in clicks(saying(screen, name))
    ]
    clicked = [action for action in done if action in wanted]
    if clicked != wanted[: len(clicked)]:
        return []
    return wanted[len(clicked) :][:1]


def button_delay(utterance: str, screen: Screen, done: Done) -> list[str]:
    first, second = clicks(saying(screen, "ONE")), clicks(saying(screen, "TWO"))
    if first[0] not in done:
        return first
    waited = len(done) - done.index(first[0])
    return second if waited >= int(part(r"wait (\d+)", utterance)) else [WAIT]


def dialog(utterance: str, screen: Screen, done: Done) -> list[str]:
    label = quoted(utterance)[0]
    return clicks(saying(screen, "Close" if label == "x" else label))


def tab(utterance: str, screen: Screen, done: Done) -> list[str]:
    return clicks(saying(screen, part(r"(Tab #\d)", utterance)))


def color(utterance: str, screen: Screen, done: Done) -> list[str]:
    wanted = COLORS[part(r"the (\w+) colored", utterance)]
    return clicks(each for each in screen if each.text.startswith(wanted))


def widget(utterance: str, screen: Screen, done: Done) -> list[str]:
    kind = quoted(utterance)[0]
    return clicks(of_role(screen, WIDGETS.get(kind, kind)))


def focus(utterance: str, screen: Screen, done: Done) -> list[str]:
    return clicks(fields(screen)[(position(utterance) or 1) - 1 :][:1])


def first_element(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Clicks numbers, which disappear after the first click but keep their order."""
    return clicks(screen[:1])


def ticket(utterance: str, screen: Screen, done: Done) -> list[str]:
    def price(number: int) -> int:
        return int(screen[number - 1].text.rpartition("$")[2])

    def minutes(number: int) -> int:
        hours, rest = re.findall(r"\d+", screen[number - 2].text)
        return int(hours) * 60 + int(rest)

    numbers = [button.number for button in of_role(screen, "button")]
    value = price if "cost" in utterance else minutes
    choose = max if re.search("most|longest", utterance) else min
    best = choose(map(value, numbers))
    return [f"click [{number}]" for number in numbers if value(number) == best]


EXPERTS: dict[str, Expert] = {
    "ascending-numbers": first_element,
    "button-delay": button_delay,
    "buy-ticket": ticket,
    "click-button": named("button"),
    "click-button-sequence": button_sequence,
    "click-color": color,
    "click-dialog": dialog,
    "click-dialog-2": dialog,
    "click-link": named("link"),
    "click-tab": tab,
    "click-test": only_button,
    "click-test-2": button_one_or_two,
    "click-test-transfer": button_one_or_two,
    "click-widget": widget,
    "focus-text": focus,
    "focus-text-2": focus,
    "unicode-test": named("button"),
}
