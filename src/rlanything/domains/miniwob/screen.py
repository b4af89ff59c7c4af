"""What an agent reads of a page: one line an element, `role "text" [number] state`.

The number follows the text, so that whoever names an element goes on with its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_LINE = re.compile(
    r'(?P<role>\w+) "(?P<text>[^"]*)" \[(?P<number>\d+)\]'
    r'(?: = "(?P<value>[^"]*)")?(?: of (?P<options>"[^"]*"(?:, "[^"]*")*))?(?P<state>(?: \w+)*)'
)


@dataclass(frozen=True, slots=True)
class Element:
    """Something visible."""

    number: int
    role: str
    text: str
    """What it says; where it says nothing, its color and the words of its class."""
    value: str | None = None
    """Of what can be filled in or chosen."""
    options: tuple[str, ...] = ()
    state: tuple[str, ...] = ()

    def line(self) -> str:
        parts = [f'{self.role} "{self.text}" [{self.number}]']
        if self.value is not None:
            parts.append(f'= "{self.value}"')
        if self.options:
            parts.append("of " + ", ".join(f'"{option}"' for option in self.options))
        return " ".join([*parts, *self.state])


def elements_of(described: Iterable[Mapping[str, Any]]) -> tuple[Element, ...]:
    """What `page.js` found, numbered from 1."""
    return tuple(
        Element(
            number,
            each["role"],
            _unquoted(each["text"]),
            None if each["value"] is None else _value(each["value"]),
            tuple(map(_unquoted, each.get("options", ()))),
            tuple(each["state"]),
        )
        for number, each in enumerate(described, start=1)
    )


def text_of(elements: Iterable[Element]) -> str:
    return "\n".join(element.line() for element in elements)


def read(text: str) -> tuple[Element, ...]:
    """The elements in an observation's text; other lines are passed over."""
    found = [match for line in text.splitlines() if (match := _LINE.fullmatch(line))]
    return tuple(
        Element(
            int(match["number"]),
            match["role"],
            match["text"],
            match["value"],
            tuple(re.findall(r'"([^"]*)"', match["options"] or "")),
            tuple(match["state"].split()),
        )
        for match in found
    )


def _value(text: str) -> str:
    """Keeps spaces, which pages compare too."""
    return re.sub(r"\s", " ", text.replace('"', "'"))


def _unquoted(text: str) -> str:
    """On one line and without the mark that ends it; pages use both only to decorate."""
    return " ".join(text.replace('"', "'").split())
