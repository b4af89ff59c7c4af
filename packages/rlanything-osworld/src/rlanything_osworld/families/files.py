"""Families of tasks on files and folders, in the file manager and in a terminal."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlanything_osworld.families.base import (
    DESKTOP,
    DesktopDraft,
    DesktopFamily,
    DesktopGoal,
    Move,
    absent,
    launch,
    moves,
    place_files,
    prints,
    run,
)

NAMES = ("may", "june", "july", "budget", "plan", "letter", "photo", "recipe", "map", "song")
FOLDERS = ("reports", "archive", "old", "shared", "private")
TITLES = ("Music", "Work", "Trips", "Bills", "Projects", "Letters")
PROMPT = "$"
_LIST = f"cd {DESKTOP} && find . -mindepth 1 | sort"


def _listed(names: Sequence[str]) -> str:
    return "".join(f"./{name}\n" for name in sorted(names))


def _draft(
    names: Sequence[str], folder: str, program: dict[str, object], goals: Sequence[DesktopGoal]
) -> DesktopDraft:
    config = (place_files(*names), run(f"mkdir -p {DESKTOP}/{folder}"), program)
    return DesktopDraft(config, {name: {"text": f"{name}\n" * 3} for name in names}, tuple(goals))


def _goal(
    kind: str, wordings: tuple[str, ...], after: Sequence[str], actions: Sequence[str | Move],
    hint: str,
) -> DesktopGoal:  # fmt: skip
    """Returns a goal that is reached if the desktop has exactly these files and folders."""
    return DesktopGoal(kind, wordings, prints(_LIST, _listed(after)), moves(*actions), hint)


def _drawn(rng: random.Random) -> tuple[list[str], str, str]:
    """Returns file names, a folder, and a name that no file has."""
    *names, other = rng.sample(NAMES, rng.randint(3, 5) + 1)
    return [f"{name}.txt" for name in names], rng.choice(FOLDERS), f"{other}.txt"


def _manager() -> dict[str, object]:
    return launch("pcmanfm", DESKTOP)


def rename(rng: random.Random) -> DesktopDraft:
    names, folder, other = _drawn(rng)
    one = rng.choice(names)
    rest = [name for name in names if name != one]
    title = rng.choice(TITLES)

    def goal(kind: str, old: str, new: str, after: Sequence[str]) -> DesktopGoal:
        wordings = (
            f"Rename {old} to {new} in the file manager.",
            f"In the open folder, {old} should be called {new}.",
            f"Give {old} the name {new}.",
        )
        steps = (f"click [icon: {old}]", "press f2", "press ctrl+a", f"type {new}", "press enter")
        return _goal(kind, wordings, after, steps, f"Click {old}, press f2 and type {new}.")

    missing = absent(f"Rename {other} to {title}.txt in the file manager.")
    goals = (
        goal("file", one, other, [*rest, other, folder]),
        goal("folder", folder, title, [*names, title]),
        missing,
    )
    return _draft(names, folder, _manager(), goals)


def new_folder(rng: random.Random) -> DesktopDraft:
    names, folder, _ = _drawn(rng)
    new, second = rng.sample(TITLES, 2)
    keys = ("press ctrl+shift+n", "press ctrl+a")

    def steps(name: str) -> tuple[str, ...]:
        return (*keys, f"type {name}", "press enter")

    one = _goal(
        "one",
        (
            f"Make a folder {new} in the open folder.",
            f"The desktop folder needs a new folder called {new}.",
        ),
        [*names, folder, new],
        steps(new),
        f"Press ctrl+shift+n, type {new}, press enter.",
    )
    two = _goal(
        "two",
        (
            f"Make two folders, {new} and {second}, in the open folder.",
            f"The desktop folder needs the new folders {new} and {second}.",
        ),
        [*names, folder, new, second],
        (*steps(new), *steps(second)),
        f"Press ctrl+shift+n, type {new}, press enter; then the same for {second}.",
    )
    return _draft(names, folder, _manager(), (one, two))


def move(rng: random.Random) -> DesktopDraft:
    names, folder, _ = _drawn(rng)
    one = rng.choice(names)
    rest = [name for name in names if name != one]

    def steps(key: str) -> tuple[str, ...]:
        opened = (f"double_click [icon: {folder}]", "press ctrl+v")
        return (f"click [icon: {one}]", f"press {key}", *opened)

    into = f"{folder}/{one}"
    goals = (
        _goal(
            "move",
            (
                f"Move {one} into the folder {folder}, in the file manager.",
                f"{one} belongs in {folder}: put it there.",
            ),
            [*rest, folder, into],
            steps("ctrl+x"),
            f"Click {one}, press ctrl+x, open {folder} and press ctrl+v.",
        ),
        _goal(
            "copy",
            (
                f"Copy {one} into the folder {folder}, in the file manager.",
                f"Put a copy of {one} in {folder} and leave the file where it is.",
            ),
            [*names, folder, into],
            steps("ctrl+c"),
            f"Click {one}, press ctrl+c, open {folder} and press ctrl+v.",
        ),
    )
    return _draft(names, folder, _manager(), goals)


def remove(rng: random.Random) -> DesktopDraft:
    names, folder, other = _drawn(rng)
    one = rng.choice(names)
    rest = [name for name in names if name != one]

    def goal(kind: str, name: str, after: Sequence[str]) -> DesktopGoal:
        wordings = (
            f"Delete {name} in the file manager.",
            f"{name} is not needed any more: remove it from the open folder.",
        )
        steps = (f"click [icon: {name}]", "press delete", Move("press enter", when="== Confirm"))
        return _goal(kind, wordings, after, steps, f"Click {name} and press delete, then enter.")

    goals = (
        goal("file", one, [*rest, folder]),
        goal("folder", folder, names),
        absent(f"Delete {other} in the file manager."),
    )
    return _draft(names, folder, _manager(), goals)


def terminal(rng: random.Random) -> DesktopDraft:
    names, folder, _ = _drawn(rng)
    one = rng.choice(names)
    rest = [name for name in names if name != one]

    def goal(
        kind: str, wordings: tuple[str, ...], after: Sequence[str], command: str
    ) -> DesktopGoal:
        steps = (Move(f"type {command}", needs=PROMPT), "press enter")
        return _goal(kind, wordings, after, steps, f"Type {command} and press enter.")

    goals = (
        goal(
            "move",
            (
                f"In the terminal, move Desktop/{one} into the folder Desktop/{folder}.",
                f"Use the open terminal to put {one} from the Desktop into Desktop/{folder}.",
            ),
            [*rest, folder, f"{folder}/{one}"],
            f"mv Desktop/{one} Desktop/{folder}/",
        ),
        goal(
            "all",
            (
                f"In the terminal, copy all .txt files of the Desktop into Desktop/{folder}.",
                f"Use the open terminal: every text file on the Desktop needs a copy in {folder}.",
            ),
            [*names, folder, *(f"{folder}/{name}" for name in names)],
            f"cp Desktop/*.txt Desktop/{folder}/",
        ),
    )
    return _draft(names, folder, launch("lxterminal"), goals)


def count(rng: random.Random) -> DesktopDraft:
    names, folder, other = _drawn(rng)
    one = rng.choice(names)

    def goal(kind: str, words: str, command: str, result: str) -> DesktopGoal:
        wordings = (
            f"In the terminal, write {words} into Desktop/{folder}/{other}, and nothing else.",
            f"Use the open terminal so that Desktop/{folder}/{other} holds {words} alone.",
        )
        target = f"{DESKTOP}/{folder}/{other}"
        typed = f"{command} > Desktop/{folder}/{other}"
        return DesktopGoal(
            kind,
            wordings,
            prints(f"cat {target}", result),
            moves(Move(f"type {typed}", needs=PROMPT), "press enter"),
            f"Type {typed} and press enter.",
        )

    goals = (
        goal("lines", f"the number of lines of Desktop/{one}", f"wc -l < Desktop/{one}", "3\n"),
        goal(
            "files",
            "the number of .txt files in the folder Desktop",
            "ls Desktop/*.txt | wc -l",
            f"{len(names)}\n",
        ),
    )
    return _draft(names, folder, launch("lxterminal"), goals)


FAMILIES = (
    DesktopFamily("files-new-folder", "files", new_folder),
    DesktopFamily("files-rename", "files", rename),
    DesktopFamily("files-delete", "files", remove),
    DesktopFamily("files-move", "files", move),
    DesktopFamily("terminal-move", "terminal", terminal),
    DesktopFamily("terminal-count", "terminal", count),
)
