"""The parts of a family of tasks, and shared parts of OSWorld's format.

A family draws files and a set-up from a seed. It states several goals that this set-up allows, each
with its own sentence, evaluator and expert. An adapter may choose among the goals; the set-up stays
the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

DESKTOP = "/home/user/Desktop"
FileContents: TypeAlias = Mapping[str, Any]
"""A kind (`text`, `sheets`, `paragraphs` or `slides`) with the content of the file."""


@dataclass(frozen=True, slots=True)
class Move:
    """One action of an expert. `[TEXT]` in it stands for the number of the element with that text
    on the screen."""

    action: str
    when: str = ""
    """The move is skipped unless the screen shows this text."""
    needs: str = ""
    """The expert waits until the screen shows this text."""


@dataclass(frozen=True, slots=True)
class DesktopGoal:
    """A possible request on a set-up."""

    name: str
    wordings: tuple[str, ...]
    """Different sentences with the same request."""
    evaluator: Mapping[str, Any]
    """The evaluator in OSWorld's format."""
    moves: tuple[Move, ...]
    """The expert's way to reach it, including the word that ends the episode."""
    hint: str
    """A hint on how to do it."""
    gold: Mapping[str, FileContents] = field(default_factory=dict)
    """Files that the evaluator compares with, by name."""


@dataclass(frozen=True, slots=True)
class DesktopDraft:
    """A set-up with its goals, the easiest first."""

    config: tuple[Mapping[str, Any], ...]
    files: Mapping[str, FileContents]
    goals: tuple[DesktopGoal, ...]


@dataclass(frozen=True, slots=True)
class DesktopFamily:
    """Tasks of one kind in one application."""

    name: str
    application: str
    draft: Callable[[random.Random], DesktopDraft]


def moves(*actions: str | Move, end: str = "done") -> tuple[Move, ...]:
    """Returns moves of an expert, with the word that ends its episode."""
    return tuple(each if isinstance(each, Move) else Move(each) for each in (*actions, end))


def place_files(*names: str) -> dict[str, Any]:
    """Returns the set-up step that puts generated files on the desktop."""
    files = [{"url": f"generated:{name}", "path": f"{DESKTOP}/{name}"} for name in names]
    return {"type": "download", "parameters": {"files": files}}


def launch(*command: str) -> dict[str, Any]:
    """Returns the set-up step that starts a program."""
    return {"type": "launch", "parameters": {"command": list(command)}}


def run(command: str) -> dict[str, Any]:
    """Returns the set-up step that runs a shell command to its end."""
    return {"type": "execute", "parameters": {"command": command, "shell": True}}


def office(program: str, name: str) -> dict[str, Any]:
    """Returns the set-up step that opens a desktop file in a LibreOffice application."""
    return launch("soffice", "--norestore", "--nologo", f"--{program}", f"{DESKTOP}/{name}")


def compares(func: str, name: str, gold: str, **options: Any) -> dict[str, Any]:
    """Returns an evaluator that compares a file of the desktop with a generated one."""
    return {
        "func": func,
        "result": {"type": "vm_file", "path": f"{DESKTOP}/{name}", "dest": f"result-{name}"},
        "expected": {"type": "cloud_file", "path": f"generated:{gold}", "dest": gold},
        "options": options,
    }


def prints(command: str, expected: str) -> dict[str, Any]:
    """Returns an evaluator that checks the output of a shell command. It uses the system's
    programs: the user can write to the first folders of the desktop's own PATH."""
    command = f"PATH=/usr/bin:/bin; {command}"
    return {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": command, "shell": True},
        "expected": {"type": "rule", "rules": {"expected": expected}},
    }


def absent(*wordings: str, looking: tuple[str, ...] = ()) -> DesktopGoal:
    """Returns a goal that cannot be reached, because its object does not exist."""
    return DesktopGoal(
        "absent",
        wordings,
        {"func": "infeasible"},
        moves(*looking, end="fail"),
        "What is asked for may be impossible: then answer fail.",
    )
