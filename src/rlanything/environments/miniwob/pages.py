"""Which pages are played, in which split, and what of a page may be changed.

A page of a family can take the place of another of it. The pages of `ood` share no family with
those of `train`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Knob:
    """A number of a page. `sets`: the variable that holds it, or `least,end` of the range that the
    page draws it from."""

    name: str
    least: int
    most: int
    sets: str

    def parameters(self, value: int) -> tuple[str, str, Any]:
        """Under what the page is told so, by which name, and what."""
        if "," in self.sets:
            return "ranges", self.sets, [value, value + 1]
        return "variables", self.sets, value


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the package."""

    name: str
    family: str
    knobs: tuple[Knob, ...] = ()


def told(page: Page, values: Mapping[str, int]) -> dict[str, Any]:
    """`values` of its knobs as the parameters of a start."""
    parameters: dict[str, Any] = {}
    for knob in page.knobs:
        if knob.name in values:
            kind, name, value = knob.parameters(values[knob.name])
            parameters.setdefault(kind, {})[name] = value
    return parameters


_BOXES = Knob("boxes", 2, 6, "2,7")
_EMAILS = Knob("emails", 2, 8, "MAX_EMAILS")


def _pages(text: Mapping[str, Mapping[str, tuple[Knob, ...]]]) -> tuple[Page, ...]:
    return tuple(
        Page(name, family, knobs) for family, names in text.items() for name, knobs in names.items()
    )


TRAIN = _pages(
    {
        "button": {"click-button": (), "click-button-sequence": ()},
        "test": {"click-test": (), "click-test-2": (), "click-test-transfer": ()},
        "link": {"click-link": ()},
        "dialog": {"click-dialog": (), "click-dialog-2": ()},
        "tab": {"click-tab": (), "click-tab-2-easy": (), "click-tab-2-medium": ()},
        "checkboxes": {
            "click-checkboxes": (_BOXES,),
            "click-checkboxes-transfer": (),
            "click-checkboxes-large": (),
        },
        "option": {"click-option": (_BOXES,)},
        "list": {"choose-list": (Knob("items", 3, 9, "3,10"),)},
        "text": {"enter-text": (), "enter-text-2": (), "enter-text-dynamic": ()},
        "password": {"enter-password": ()},
        "login": {"login-user": (), "login-user-popup": ()},
        "focus": {"focus-text": (), "focus-text-2": (Knob("boxes", 2, 5, "TEXTBOXES"),)},
        "color": {"click-color": (Knob("colors", 2, 8, "MAX_COLORS"),)},
        "widget": {"click-widget": (Knob("widgets", 2, 8, "NUM_ELEMENTS"),)},
        "collapsible": {"click-collapsible": (), "click-collapsible-nodelay": ()},
        "tree": {"navigate-tree": (Knob("files", 3, 12, "MAX_FILES"),)},
        "spinner": {"use-spinner": (Knob("number", -9, 9, "-10,10"),)},
    }
)

OOD = _pages(
    {
        "scroll list": {"click-scroll-list": ()},
        "table": {"read-table": ()},
        "movies": {"multi-layouts": (), "multi-orderings": ()},
        "autocomplete": {"use-autocomplete": ()},
        "form": {"form-sequence-2": ()},
        "phone book": {"phone-book": (Knob("people", 2, 9, "TOTAL_RESULTS"),)},
    }
)

PAGES: dict[str, Page] = {page.name: page for page in (*TRAIN, *OOD)}
