"""The text form of a page for an agent: one line per element, `role "text" [number] state`.

The number follows the text, so that a model that names an element continues with its number.
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
    """A visible element of a page."""

    number: int
    role: str
    text: str
    """Its text; an element without text has its color and the words of its class."""
    value: str | None = None
    """Value of an element that can be filled in or chosen."""
    options: tuple[str, ...] = ()
    state: tuple[str, ...] = ()

    def line(self) -> str:
        """Returns the element's line in an observation."""
        parts = [f'{self.role} "{self.text}" [{self.number}]']
        if self.value is not None:
            parts.append(f'= "{self.value}"')
        if self.options:
            parts.append("of " + ", ".join(f'"{option}"' for option in self.options))
        return " ".join([*parts, *self.state])


def elements_of(described: Iterable[Mapping[str, Any]]) -> tuple[Element, ...]:
    """Returns the elements that `page.js` listed, numbered from 1."""
    return tuple(
        Element(
            number,
            item["role"],
            _unquoted(item["text"]),
            None if item["value"] is None else _value(item["value"]),
            tuple(map(_unquoted, item.get("options", ()))),
            tuple(item["state"]),
        )
        for number, item in enumerate(described, start=1)
    )


def text_of(elements: Iterable[Element]) -> str:
    """Returns the text of a screen."""
    return "\n".join(element.line() for element in elements)


def read(text: str) -> tuple[Element, ...]:
    """Returns the elements in an observation's text; other lines are skipped."""
    matches = [match for line in text.splitlines() if (match := _LINE.fullmatch(line))]
    return tuple(
        Element(
            int(match["number"]),
            match["role"],
            match["text"],
            match["value"],
            tuple(re.findall(r'"([^"]*)"', match["options"] or "")),
            tuple(match["state"].split()),
        )
        for match in matches
    )


def _value(text: str) -> str:
    """Returns the text of a field with its spaces, because pages compare them too."""
    return re.sub(r"\s", " ", text.replace('"', "'"))


def _unquoted(text: str) -> str:
    """Returns the text on one line, without the quotation marks that end it; pages use both only as
    decoration."""
    return " ".join(text.replace('"', "'").split())
