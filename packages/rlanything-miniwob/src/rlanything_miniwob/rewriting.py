"""Tasks that an adapter rewrote: another page of the family, other numbers, with or without a hint.

An answer is a few lines: `page: NAME`, `NUMBER: VALUE` for the page's numbers, and `hint: TEXT` (or
`hint: none`). Omitted lines keep the page's own values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rlanything.domains.base import InvalidTask
from rlanything_miniwob.pages import PAGES, Page

LONGEST_HINT = 200
_LINE = re.compile(r"\s*([a-z][a-z ]{0,20}):\s*(\S.*?)\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class PageSetting:
    """A page with the values of its knobs, and a hint."""

    page: Page
    values: dict[str, int] = field(default_factory=dict)
    hint: str = ""


def family(page: Page) -> tuple[Page, ...]:
    """Returns the pages that may replace it, itself first."""
    return (page, *(each for each in PAGES.values() if each.family == page.family != each != page))


def setting_in(answer: str, pages: Sequence[Page]) -> PageSetting:
    """Returns the setting in the answer. `pages`: the allowed pages, the root's first. Raises
    `InvalidTask` with the reason."""
    fields = _fields(answer)
    name = fields.pop("page", pages[0].name)
    allowed = {page.name: page for page in pages}
    if name not in allowed:
        raise InvalidTask(f"page {name} is none of {', '.join(allowed)}")
    hint = _hint(fields.pop("hint", "none"))
    page = allowed[name]
    return PageSetting(page, _values(page, fields), hint)


def _fields(answer: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in answer.strip().splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        if match[1] in fields:
            raise InvalidTask(f"{match[1]} is said twice", "unreadable")
        fields[match[1]] = match[2]
    if not fields:
        raise InvalidTask(
            "no `page: ...`, no number and no `hint: ...` in the answer", "unreadable"
        )
    return fields


def _hint(text: str) -> str:
    if text.lower().rstrip(".") == "none":
        return ""
    if len(text) > LONGEST_HINT:
        raise InvalidTask(f"the hint has {len(text)} characters; {LONGEST_HINT} are allowed")
    if not text.isprintable():
        raise InvalidTask("the hint holds something unprintable")
    return text


def _values(page: Page, fields: dict[str, str]) -> dict[str, int]:
    knobs = {knob.name: knob for knob in page.knobs}
    values: dict[str, int] = {}
    for name, text in fields.items():
        if name not in knobs:
            raise InvalidTask(f"{page.name} has no number {name!r}{_known(knobs)}")
        knob = knobs[name]
        if not re.fullmatch(r"-?\d{1,4}", text) or not knob.least <= int(text) <= knob.most:
            raise InvalidTask(f"{name} is {text}: {knob.least} to {knob.most} are possible")
        values[name] = int(text)
    return values


def _known(names: Iterable[str]) -> str:
    known = ", ".join(names)
    return f": it has {known}" if known else ""
