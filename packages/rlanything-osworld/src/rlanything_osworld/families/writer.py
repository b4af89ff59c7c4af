"""Families of tasks on a text document."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlanything_osworld.families.base import (
    DESKTOP,
    DesktopDraft,
    DesktopFamily,
    DesktopGoal,
    FileContents,
    Move,
    compares,
    moves,
    office,
    place_files,
)

NOUNS = ("river", "forest", "engine", "market", "garden", "winter", "bridge", "harbour")
VERBS = ("was quiet", "looked old", "seemed far away", "was open again", "had changed")
TIMES = ("on Monday", "in the morning", "last year", "at noon", "after the rain")
FILES = ("notes", "letter", "report", "story", "diary", "draft")
SAVE = ("press ctrl+s", Move("press enter", when="Confirm File Format"))
_TEXT = """import re, sys, zipfile
text = zipfile.ZipFile(sys.argv[1]).read("word/document.xml").decode()
print(*"".join(re.findall("<w:t(?: [^>]*)?>([^<]*)", text)).split(), sep="", end="")"""
"""A program that prints the text of a document without blanks."""


def _sentences(rng: random.Random, nouns: Sequence[str], count: int) -> list[str]:
    return [
        f"The {nouns[i % len(nouns)]} {rng.choice(VERBS)} {rng.choice(TIMES)}."
        for i in range(count)
    ]


def _document(sentences: Sequence[str]) -> FileContents:
    return {"paragraphs": [["Normal", sentence] for sentence in sentences]}


def _draft(name: str, sentences: Sequence[str], *goals: DesktopGoal) -> DesktopDraft:
    return DesktopDraft(
        (place_files(name), office("writer", name)), {name: _document(sentences)}, goals
    )


def _compared(
    goal: str, wordings: tuple[str, ...], name: str, new: Sequence[str], actions: Sequence[str],
    hint: str,
) -> DesktopGoal:  # fmt: skip
    evaluator = compares("compare_docx_files", name, "gold.docx", ignore_blanks=False)
    gold = {"gold.docx": _document(new)}
    return DesktopGoal(goal, wordings, evaluator, moves(*actions, *SAVE), hint, gold)


def _examined(
    goal: str, wordings: tuple[str, ...], name: str, func: str, rules: FileContents | None,
    kept: Sequence[str], actions: Sequence[str], hint: str,
) -> DesktopGoal:  # fmt: skip
    """Returns a goal that is reached if `func` confirms it and the text is unchanged: a document
    without text has any font."""
    path = f"{DESKTOP}/{name}"
    printed = ["/usr/bin/python3", "-I", "-c", _TEXT, path]
    evaluator = {
        "func": [func, "exact_match"],
        "conj": "and",
        "result": [
            {"type": "vm_file", "path": path, "dest": f"result-{name}"},
            {"type": "vm_command_line", "command": printed},
        ],
        "options": [
            {} if rules is None else {"rules": rules},
            {"rules": {"expected": "".join("".join(kept).split())}},
        ],
    }
    return DesktopGoal(goal, wordings, evaluator, moves(*actions, *SAVE), hint)


def replace(rng: random.Random) -> DesktopDraft:
    name = f"{rng.choice(FILES)}.docx"
    old, kept, new = rng.sample(NOUNS, 3)
    sentences = _sentences(rng, (old, kept), rng.randint(3, 5))
    goals = [
        _compared(
            kind,
            (
                f'Replace every "{a}" with "{b}" in the open document and save it as docx.',
                f"Wherever the text says {a} it should say {b}. Change that and save the file.",
                f"In {name}, put {b} in place of each {a}; then save.",
            ),
            name,
            [sentence.replace(a, b) for sentence in sentences],
            (
                "press ctrl+h",
                f"type {a}",
                "click [field^2]",
                f"type {b}",
                "click [button Replace All]",
                "press escape",
                "press escape",
            ),
            f"Press ctrl+h, type {a} under Find and {b} under Replace, click Replace All.",
        )
        for kind, a, b in (("first", old, new), ("second", kept, new))
    ]
    return _draft(name, sentences, *goals)


def append(rng: random.Random) -> DesktopDraft:
    name = f"{rng.choice(FILES)}.docx"
    sentences = _sentences(rng, rng.sample(NOUNS, 2), rng.randint(2, 4))
    line = f"{rng.choice(('Nobody', 'Everyone', 'Somebody'))} saw the {rng.choice(NOUNS)}."
    return _draft(
        name,
        sentences,
        _compared(
            "end",
            (
                f'Add a last paragraph "{line}" to the open document and save it as docx.',
                f'At the end of {name}, write "{line}" in a paragraph of its own, and save.',
            ),
            name,
            [*sentences, line],
            ("press ctrl+end", "press enter", f"type {line}"),
            "Press ctrl+end and enter, type the sentence, then press ctrl+s.",
        ),
        _compared(
            "start",
            (
                f'Add a first paragraph "{line}" before all others, and save the file as docx.',
                f'Begin {name} with a new paragraph "{line}", then save.',
            ),
            name,
            [line, *sentences],
            ("press ctrl+home", f"type {line}", "press enter"),
            "Press ctrl+home, type the sentence, press enter, then ctrl+s.",
        ),
    )


def layout(rng: random.Random) -> DesktopDraft:
    name = f"{rng.choice(FILES)}.docx"
    sentences = _sentences(rng, rng.sample(NOUNS, 2), rng.randint(2, 4))
    return _draft(
        name,
        sentences,
        _examined(
            "center",
            (
                "Center the first line of the document and save it as docx.",
                "The first paragraph should stand in the middle. Change that and save the file.",
            ),
            name,
            "is_first_line_centered",
            None,
            sentences,
            ("press ctrl+home", "press ctrl+e"),
            "Press ctrl+home, then ctrl+e, then ctrl+s.",
        ),
        _examined(
            "break",
            (
                "Put a page break at the end of the document and save it as docx.",
                "After the last paragraph a new page should begin: insert one break, and save.",
            ),
            name,
            "contains_page_break",
            {"page_break_count": 1},
            sentences,
            ("press ctrl+end", "press ctrl+enter"),
            "Press ctrl+end, then ctrl+enter, then ctrl+s.",
        ),
    )


def font(rng: random.Random) -> DesktopDraft:
    name = f"{rng.choice(FILES)}.docx"
    sentences = _sentences(rng, rng.sample(NOUNS, 2), rng.randint(2, 4))
    fonts = rng.sample(("DejaVu Sans", "DejaVu Serif", "DejaVu Sans Mono"), 2)
    goals = [
        _examined(
            f"font-{i}",
            (
                f"Set the whole document in the font {name_of_font} and save it as docx.",
                f"All of the text should be in {name_of_font}. Change the font and save the file.",
            ),
            name,
            "compare_font_names",
            {"font_name": name_of_font},
            sentences,
            (
                "press ctrl+a",
                "click [Font Name]",
                "press ctrl+a",
                f"type {name_of_font}",
                "press enter",
            ),
            f"Press ctrl+a, click Font Name, type {name_of_font}, press enter, then ctrl+s.",
        )
        for i, name_of_font in enumerate(fonts)
    ]
    return _draft(name, sentences, *goals)


FAMILIES = (
    DesktopFamily("writer-append", "writer", append),
    DesktopFamily("writer-layout", "writer", layout),
    DesktopFamily("writer-font", "writer", font),
    DesktopFamily("writer-replace", "writer", replace),
)
