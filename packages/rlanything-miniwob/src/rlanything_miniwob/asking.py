"""Other sentences that pages of the vision domain could have asked about the same screen.

So one screenshot gives many lessons, and the request can no longer be guessed from the usual layout
of such pages.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlanything.records import Task
from rlanything_miniwob.environment import EpisodeSpec
from rlanything_miniwob.experts.clicking import COLORS
from rlanything_miniwob.experts.drawings import SHAPES, SIZES
from rlanything_miniwob.screen import Element
from rlanything_miniwob.tasks import make_task, spec_of_task

COLOR_NAMES = {code: name for name, code in COLORS.items()}
SIZE_NAMES = {size: name for name, size in SIZES.items()}
WIDGETS = {"radio": "radio", "checkbox": "checkbox", "textbox": "text"} | {
    name: name for name in ("textarea", "button")
}
"""Names of the roles on the page `click-widget`."""
MOST = 12
"""Largest number of sentences for one screen."""
LABELS = {*"0123456789", "ONE", "TWO", "Rectangle", "Circle", "Triangle", "Letter", "Number"}
"""Words on buttons that have a meaning; other words are drawn at random."""


def words_of(element: Element) -> tuple[str, ...]:
    """Returns the words for an element: its color, size, kind, role or letters."""
    size = next((SIZE_NAMES[word] for word in element.state if word in SIZE_NAMES), "large")
    if element.role in SHAPES:
        return (size, element.text, "shape", SHAPES[element.role])
    if element.role == "text" and element.state:
        kind = "digit" if element.text.isdigit() else "letter"
        return (size, element.state[0], kind, element.text)
    code = element.text.partition(" ")[0]
    if code in COLOR_NAMES:
        return (COLOR_NAMES[code], "box")
    label = (element.text,) if element.text in LABELS else ()
    return (WIDGETS.get(element.role, element.role), *label)


def possible_tasks(task: Task, screen: Sequence[Element], rng: random.Random) -> list[Task]:
    """Returns the task, and others that a page with this screen could have been; at most `MOST`.
    The expert decides whether a task can be done there."""
    spec = spec_of_task(task)
    sentences = _sentences(task.kind, screen, rng)
    rng.shuffle(sentences)
    others = [
        make_task(f"{task.id}/{number}", EpisodeSpec(page, spec.seed), sentence)
        for number, (page, sentence) in enumerate(dict.fromkeys(sentences))
    ]
    return [task, *(each for each in others if each.instruction != task.instruction)][:MOST]


def _sentences(page: str, screen: Sequence[Element], rng: random.Random) -> list[tuple[str, str]]:
    """Yields pages whose experts know the answer, each with a sentence in the page's wording."""
    sentences: list[tuple[str, str]] = []
    for element in screen:
        words = words_of(element)
        if element.role == "button" and len(words) == 2:
            sentences.append(("click-test-2", f"Click button {words[1]}."))
        if words[-1] == "box":
            sentences.append(("click-color", f"Click on the {words[0]} colored box."))
        if page == "click-widget":
            sentences.append((page, f'Click on a "{words[0]}" widget.'))
        if len(words) == 4 and page != "identify-shape":
            sentences.append(("click-shape", f"Click on a {_description(words, rng)}"))
            if page == "count-shape":
                described = _description(words, rng)
                sentences.append((page, f"How many {described}s are there?"))
    return sentences


def _description(words: Sequence[str], rng: random.Random) -> str:
    """Returns a description of a drawing in the pages' wording: size, color or both, then its
    kind."""
    size, color, *kinds = words
    looks = [look for look in (size, color) if rng.random() < 0.5]
    return " ".join([*looks, rng.choice(("item", "item", *kinds))])
