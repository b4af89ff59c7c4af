"""Families of tasks on a presentation."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlanything_osworld.families.base import (
    DesktopDraft,
    DesktopFamily,
    DesktopGoal,
    Move,
    compares,
    moves,
    office,
    place_files,
)

TOPICS = ("Gardens", "Bridges", "Trains", "Rivers", "Bread", "Music", "Winter", "Maps")
LINES = ("What we know", "Why it matters", "A short history", "Three questions")
FILES = ("talk", "slides", "lecture", "meeting")
SAVE = (
    "press escape",
    "press escape",
    "press ctrl+s",
    Move("press enter", when="Confirm File Form"),
)
_LOOKS = (
    *("shape", "indent", "font_name", "font_size", "font_bold", "font_italic", "color_rgb"),
    *("font_underline", "strike_through", "alignment", "bullets", "background_color"),
)
ONLY_TEXT = {f"examine_{look}": False for look in _LOOKS}
"""Options that ignore attributes lost when another program writes the file."""


def _goal(
    kind: str, wordings: tuple[str, ...], name: str, slides: Sequence[Sequence[str]],
    actions: Sequence[str], hint: str,
) -> DesktopGoal:  # fmt: skip
    evaluator = compares("compare_pptx_files", name, "gold.pptx", **ONLY_TEXT)
    gold = {"gold.pptx": {"slides": slides}}
    return DesktopGoal(kind, wordings, evaluator, moves(*actions, *SAVE), hint, gold)


def retitle(rng: random.Random) -> DesktopDraft:
    name = f"{rng.choice(FILES)}.pptx"
    old, new, second = rng.sample(TOPICS, 3)
    line, other = rng.sample(LINES, 2)
    slides = [[old, line], [second, other]]
    goals = (
        _goal(
            "title",
            (
                f'Change the title of the first slide to "{new}" and save the file as pptx.',
                f"The first slide should be called {new} instead of {old}. Save that.",
            ),
            name,
            [[new, line], slides[1]],
            (f"double_click [paragraph: {old}]", "press ctrl+a", f"type {new}"),
            f"Double-click the title, press ctrl+a, type {new}, press escape, then ctrl+s.",
        ),
        _goal(
            "text",
            (
                f'On the first slide, replace the text "{line}" by "{new}" and save as pptx.',
                f"Under the title of the first slide it should say {new}. Change it and save.",
            ),
            name,
            [[old, new], slides[1]],
            (f"double_click [paragraph: {line}]", "press ctrl+a", f"type {new}"),
            f"Double-click the text, press ctrl+a, type {new}, press escape, then ctrl+s.",
        ),
    )
    return DesktopDraft(
        (place_files(name), office("impress", name)), {name: {"slides": slides}}, goals
    )


def slides(rng: random.Random) -> DesktopDraft:
    name = f"{rng.choice(FILES)}.pptx"
    given = [[topic, rng.choice(LINES)] for topic in rng.sample(TOPICS, rng.randint(2, 3))]
    goals = (
        _goal(
            "delete",
            (
                "Delete the first slide and save the file as pptx.",
                f"The slide about {given[0][0]} is not needed: remove it, and save.",
            ),
            name,
            given[1:],
            ("click [Delete Slide]",),
            "Click Delete Slide, then press ctrl+s.",
        ),
        _goal(
            "duplicate",
            (
                "Duplicate the first slide and save the file as pptx.",
                f"The slide about {given[0][0]} should be there twice in a row. Copy it, and save.",
            ),
            name,
            [given[0], *given],
            ("click [Duplicate Slide]",),
            "Click Duplicate Slide, then press ctrl+s.",
        ),
    )
    return DesktopDraft(
        (place_files(name), office("impress", name)), {name: {"slides": given}}, goals
    )


FAMILIES = (
    DesktopFamily("impress-slides", "impress", slides),
    DesktopFamily("impress-retitle", "impress", retitle),
)
