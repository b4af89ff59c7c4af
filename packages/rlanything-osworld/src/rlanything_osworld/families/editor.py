"""Families of tasks on a text file in an editor, and on the editor's settings."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlanything_osworld.families.base import (
    DESKTOP,
    DesktopDraft,
    DesktopFamily,
    DesktopGoal,
    absent,
    compares,
    launch,
    moves,
    place_files,
    prints,
)

WORDS = ("milk", "bread", "eggs", "rice", "soap", "salt", "tea", "nuts", "fish", "honey", "oil")
FILES = ("list", "notes", "todo", "items", "memo", "plan")


def _lines(rng: random.Random) -> tuple[str, list[str], str]:
    """Returns a file name, its lines and a word that is not among them."""
    lines: list[str] = rng.sample(WORDS, rng.randint(4, 7))
    return f"{rng.choice(FILES)}.txt", lines[1:], lines[0]


def _text(lines: Sequence[str]) -> dict[str, str]:
    return {"text": "".join(f"{line}\n" for line in lines)}


def _draft(name: str, lines: Sequence[str], *goals: DesktopGoal) -> DesktopDraft:
    config = (place_files(name), launch("mousepad", f"{DESKTOP}/{name}"))
    return DesktopDraft(config, {name: _text(lines)}, goals)


def _goal(
    kind: str, wordings: tuple[str, ...], saved: str, new: Sequence[str],
    actions: Sequence[str], hint: str,
) -> DesktopGoal:  # fmt: skip
    evaluator = compares("compare_text_file", saved, "gold.txt")
    return DesktopGoal(kind, wordings, evaluator, moves(*actions), hint, {"gold.txt": _text(new)})


def add_line(rng: random.Random) -> DesktopDraft:
    name, lines, word = _lines(rng)
    return _draft(
        name,
        lines,
        _goal(
            "end",
            (
                f"Add the line {word} at the end of the open file and save it.",
                f"The last line of {name} should be {word}. Write it there, and save the file.",
                f"Append {word} to the list, on a line of its own, then save.",
            ),
            name,
            [*lines, word],
            ("press ctrl+end", f"type {word}", "press enter", "press ctrl+s"),
            f"Press ctrl+end, type {word}, press enter, then ctrl+s.",
        ),
        _goal(
            "start",
            (
                f"Add the line {word} before all others and save the file.",
                f"The first line of {name} should be {word}, with the rest below it. Save that.",
            ),
            name,
            [word, *lines],
            ("press ctrl+home", f"type {word}", "press enter", "press ctrl+s"),
            f"Press ctrl+home, type {word}, press enter, then ctrl+s.",
        ),
    )


def replace_word(rng: random.Random) -> DesktopDraft:
    name, lines, new = _lines(rng)
    old, kept = rng.sample(lines, 2)
    lines = [*lines, old, kept]
    goals = [
        _goal(
            kind,
            (
                f"Replace every {word} by {new} in the open file and save it.",
                f"Wherever {name} says {word} it should say {new}. Change it and save.",
            ),
            name,
            [new if line == word else line for line in lines],
            (
                "press ctrl+r",
                f"type {word}",
                "click [field^2]",
                f"type {new}",
                "click [check box Replace all in:]",
                "click [button Replace All]",
                "press escape",
                "press ctrl+s",
            ),
            f"Press ctrl+r, fill in {word} and {new}, tick Replace all in, click Replace All.",
        )
        for kind, word in (("first", old), ("second", kept))
    ]
    return _draft(name, lines, *goals)


def save_as(rng: random.Random) -> DesktopDraft:
    name, lines, word = _lines(rng)
    copy = f"{word}.txt"
    wanted = (
        f"Save a copy of the open file as {copy} in the same folder.",
        f"Keep {name} and save its text once more on the desktop, under the name {copy}.",
    )
    steps = ("press ctrl+shift+s", "press ctrl+a", f"type {DESKTOP}/{copy}", "press enter")
    copied = _goal("copy", wanted, copy, lines, steps, f"Press ctrl+shift+s and type {copy}.")
    missing = rng.choice([each for each in WORDS if each not in lines])
    nothing = absent(
        f"Delete the line {missing} from the open file and save it.",
        f"Take {missing} off the list in {name}, then save.",
    )
    return _draft(name, lines, copied, nothing)


def settings(rng: random.Random) -> DesktopDraft:
    name, lines, _ = _lines(rng)
    schema = "org.xfce.mousepad.preferences"
    goals = [
        DesktopGoal(
            kind,
            (
                f"Turn on {words} in the text editor.",
                f"Set the editor up so that it has {words}.",
            ),
            prints(f"gsettings get {schema}.{key}", f"{value}\n"),
            moves(f"click [{menu}]", f"click [menu item {entry}]"),
            f"Open the menu {menu} and click {entry}.",
        )
        for kind, words, menu, entry, key, value in (
            ("numbers", "line numbers", "View", "Line Numbers", "view show-line-numbers", "true"),
            ("wrap", "word wrap", "Document", "Word Wrap", "view word-wrap", "true"),
            ("indent", "auto indent", "Document", "Auto Indent", "view auto-indent", "true"),
        )
    ]
    return _draft(name, lines, *goals)


FAMILIES = (
    DesktopFamily("editor-add-line", "editor", add_line),
    DesktopFamily("editor-save-as", "editor", save_as),
    DesktopFamily("editor-settings", "editor", settings),
    DesktopFamily("editor-replace-word", "editor", replace_word),
)
