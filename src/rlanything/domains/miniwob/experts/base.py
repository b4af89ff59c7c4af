"""What all experts share: their type, and how they find and name things on a screen.

An expert answers with every action that is right now, the one it would take first. It answers from
the screen wherever that shows how far things are, so that it also goes on from what others did, and
takes back what they did wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from rlanything.domains.miniwob.screen import Element

Screen: TypeAlias = Sequence[Element]
Done: TypeAlias = Sequence[str]
"""The actions so far, oldest first."""
Expert: TypeAlias = Callable[[str, Screen, Done], list[str]]
"""(what the page asks for, the screen, the actions so far) -> the right actions, [] if lost."""

FIELDS = ("textbox", "textarea")


def clicks(elements: Iterable[Element]) -> list[str]:
    return [f"click [{element.number}]" for element in elements]


def saying(screen: Screen, *texts: str) -> list[Element]:
    return [element for element in screen if element.text in texts]


def of_role(screen: Screen, *roles: str) -> list[Element]:
    return [element for element in screen if element.role in roles]


def fields(screen: Screen) -> list[Element]:
    return of_role(screen, *FIELDS)


def quoted(utterance: str) -> list[str]:
    return re.findall(r'"([^"]*)"', utterance)


def part(pattern: str, utterance: str) -> str:
    """The first group; empty where the pattern is not found."""
    match = re.search(pattern, utterance)
    return match[1] if match else ""


def position(utterance: str) -> int:
    """The 1 of `1st`, the 12 of `12th`; 0 where there is none."""
    return int(part(r"\b(\d+)(?:st|nd|rd|th)\b", utterance) or 0)


def fill(wanted: Iterable[tuple[Element, str]]) -> list[str]:
    """Puts right what fields hold, in any order."""
    return [
        f"type [{field.number}] {text}".rstrip() for field, text in wanted if field.value != text
    ]


def tick(elements: Iterable[Element], wanted: Callable[[Element], bool], mark: str) -> list[str]:
    """Clicks what is marked and should not be, then what should be marked and is not."""
    off = [each for each in elements if (mark in each.state) != wanted(each)]
    return clicks(sorted(off, key=lambda each: mark not in each.state))


def submit(screen: Screen, *texts: str) -> list[str]:
    return clicks(saying(screen, *(texts or ("Submit",))))
