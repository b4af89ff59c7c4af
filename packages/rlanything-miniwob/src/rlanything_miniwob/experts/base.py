"""The type of all experts, and the ways to find and name elements on a screen.

An expert returns every action that is right now, the best one first. It decides from the screen if
that shows the progress. So it can also continue another player's episode, and undo mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from rlanything_miniwob.screen import Element

Screen: TypeAlias = Sequence[Element]
Done: TypeAlias = Sequence[str]
"""The actions so far, oldest first."""
Expert: TypeAlias = Callable[[str, Screen, Done], list[str]]
"""Maps (the page's request, the screen, the actions so far) to the right actions; [] if lost."""

FIELDS = ("textbox", "textarea")


def clicks(elements: Iterable[Element]) -> list[str]:
    """Returns a click on every element."""
    return [f"click [{element.number}]" for element in elements]


def saying(screen: Screen, *texts: str) -> list[Element]:
    """Returns the elements with one of the texts."""
    return [element for element in screen if element.text in texts]


def of_role(screen: Screen, *roles: str) -> list[Element]:
    """Returns the elements of one of the roles."""
    return [element for element in screen if element.role in roles]


def fields(screen: Screen) -> list[Element]:
    """Returns the fields that can be filled in."""
    return of_role(screen, *FIELDS)


def quoted(utterance: str) -> list[str]:
    """Returns the texts in quotes."""
    return re.findall(r'"([^"]*)"', utterance)


def part(pattern: str, utterance: str) -> str:
    """Returns the first group of a pattern; empty if there is no match."""
    match = re.search(pattern, utterance)
    return match[1] if match else ""


def position(utterance: str) -> int:
    """Returns the number of an ordinal: 1 for `1st`, 12 for `12th`; 0 if there is none."""
    return int(part(r"\b(\d+)(?:st|nd|rd|th)\b", utterance) or 0)


def fill(wanted: Iterable[tuple[Element, str]]) -> list[str]:
    """Returns the actions that correct fields, in any order."""
    return [
        f"type [{field.number}] {text}".rstrip() for field, text in wanted if field.value != text
    ]


def tick(elements: Iterable[Element], wanted: Callable[[Element], bool], mark: str) -> list[str]:
    """Returns clicks on wrongly marked elements, then on elements whose mark is missing."""
    off = [each for each in elements if (mark in each.state) != wanted(each)]
    return clicks(sorted(off, key=lambda element: mark not in element.state))


def submit(screen: Screen, *texts: str) -> list[str]:
    """Returns a click on the button that ends the task."""
    return clicks(saying(screen, *(texts or ("Submit",))))
