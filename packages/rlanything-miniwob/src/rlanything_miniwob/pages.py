"""The supported pages, their splits, and the parts of a page that may be changed.

Pages of a family can replace each other, unless they are held out. The pages of `OOD` share no
family with those of `TRAIN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Knob:
    """A number of a page. `sets`: the variable that holds it, or `least,end` of the range from
    which the page draws it."""

    name: str
    least: int
    most: int
    sets: str

    def parameters(self, value: int) -> tuple[str, str, Any]:
        """Returns the kind of parameter (`variables` or `ranges`), its name and its value."""
        if "," in self.sets:
            return "ranges", self.sets, [value, value + 1]
        return "variables", self.sets, value


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the package."""

    name: str
    family: str
    rank: int
    """Difficulty among the pages of its family; 1 is the easiest."""
    hint: str
    """A hint that helps on the pages of its family."""
    knobs: tuple[Knob, ...] = ()


def page_parameters(page: Page, values: Mapping[str, int]) -> dict[str, Any]:
    """Returns the `values` of a page's knobs as the parameters of an episode."""
    parameters: dict[str, Any] = {}
    for knob in page.knobs:
        if knob.name in values:
            kind, name, value = knob.parameters(values[knob.name])
            parameters.setdefault(kind, {})[name] = value
    return parameters


def _family(name: str, hint: str, *ranked: Sequence[str], **knobs: Knob) -> tuple[Page, ...]:
    """Returns a family's pages. `ranked`: groups of equally hard pages, the easiest first. `knobs`:
    by page, with _ for -."""
    return tuple(
        Page(
            page,
            name,
            rank,
            hint,
            (knobs[key],) if (key := page.replace("-", "_")) in knobs else (),
        )
        for rank, pages in enumerate(ranked, start=1)
        for page in pages
    )


TRAIN = (
    *_family(
        "button", "Read the words on the buttons.", ["click-button"], ["click-button-sequence"]
    ),
    *_family(
        "test",
        "Read the words on the buttons.",
        ["click-test"],
        ["click-test-2", "click-test-transfer"],
    ),
    *_family("link", "The link is one word of the text.", ["click-link"]),
    *_family("dialog", "The cross of a dialog is a button.", ["click-dialog"], ["click-dialog-2"]),
    *_family(
        "tab",
        "Links stand behind the tabs: open one after the other.",
        ["click-tab"],
        ["click-tab-2-easy"],
        ["click-tab-2-medium"],
    ),
    *_family(
        "checkboxes",
        "Tick what is named and nothing else, then submit.",
        ["click-checkboxes"],
        ["click-checkboxes-transfer"],
        ["click-checkboxes-large"],
        click_checkboxes=Knob("boxes", 2, 6, "2,7"),
    ),
    *_family(
        "option",
        "Choose first, then submit.",
        ["click-option"],
        click_option=Knob("options", 2, 6, "2,7"),
    ),
    *_family(
        "list",
        "Choose first, then submit.",
        ["choose-list"],
        choose_list=Knob("items", 3, 9, "3,10"),
    ),
    *_family(
        "text",
        "Type the words as they should look, then submit.",
        ["enter-text", "enter-text-dynamic"],
        ["enter-text-2"],
    ),
    *_family("password", "Both fields take the same.", ["enter-password"]),
    *_family("login", "Close what is in the way.", ["login-user"], ["login-user-popup"]),
    *_family(
        "focus",
        "A click puts the cursor into a field.",
        ["focus-text"],
        ["focus-text-2"],
        focus_text_2=Knob("boxes", 1, 3, "TEXTBOXES"),
    ),
    *_family(
        "color",
        "Colors are written as red, green and blue.",
        ["click-color"],
        click_color=Knob("colors", 2, 8, "MAX_COLORS"),
    ),
    *_family(
        "widget",
        "The kind of a thing stands before its words.",
        ["click-widget"],
        click_widget=Knob("widgets", 2, 8, "NUM_ELEMENTS"),
    ),
    *_family(
        "collapsible",
        "A section opens with a click on its name.",
        ["click-collapsible", "click-collapsible-nodelay"],
        ["click-collapsible-2"],
    ),
    *_family(
        "tree",
        "A folder opens with a click on its name.",
        ["navigate-tree"],
        navigate_tree=Knob("files", 3, 12, "MAX_FILES"),
    ),
    *_family(
        "spinner",
        "A number can be typed.",
        ["use-spinner"],
        use_spinner=Knob("number", -9, 9, "-10,10"),
    ),
    *_family("table", "The value stands beside its name.", ["read-table"], ["read-table-2"]),
)

OOD = (
    *_family("scroll list", "Choose one after the other.", ["click-scroll-list"]),
    *_family("movies", "Each field has its name.", ["multi-layouts", "multi-orderings"]),
    *_family("form", "Do things in their order.", ["form-sequence-2", "form-sequence-3"]),
    *_family("date", "A date is typed as year, month and day.", ["enter-date"]),
    *_family("phone book", "Turn pages until the name is there.", ["phone-book"]),
    *_family("script", "Compare letter by letter.", ["unicode-test"]),
)

_DRAWN = (
    *_family(
        "shape",
        "A thing fits if all that is said of it does.",
        ["click-shape"],
        click_shape=Knob("shapes", 3, 19, "3,20"),
    ),
    *_family("figure", "Letters and numbers are no shapes.", ["identify-shape"]),
    *_family(
        "count",
        "Count what fits, then click the number.",
        ["count-shape"],
        count_shape=Knob("shapes", 3, 9, "3,10"),
    ),
    *_family("shades", "Shades may be pale or dark.", ["click-shades"]),
)
PAGES: dict[str, Page] = {page.name: page for page in (*TRAIN, *OOD, *_DRAWN)}
SEEN_TRAIN = tuple(
    PAGES[name]
    for name in (
        "click-color",
        "click-shape",
        "identify-shape",
        "count-shape",
        "click-test",
        "click-test-2",
        "click-widget",
    )
)
"""Pages for vision alone: color, shape, place or letters identify the target, and one click is
enough."""
SEEN_OOD = tuple(PAGES[name] for name in ("click-test-transfer", "click-shades"))


def page_named(name: str) -> Page:
    """Returns a page of the package; a page that is not listed here is its own family."""
    return PAGES.get(name) or Page(name, name, 1, "")
