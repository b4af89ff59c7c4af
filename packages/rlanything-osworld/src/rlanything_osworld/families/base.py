"""The parts of a family of tasks, and those of OSWorld's format that families share.

A family draws files and a set-up from a seed, and states several goals that this set-up allows,
each with its own sentence, evaluator and expert. The goals are what an adapter may choose among:
the set-up stays as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

DESKTOP = "/home/user/Desktop"
FileContents: TypeAlias = Mapping[str, Any]
"""A kind (`text`, `sheets`, `paragraphs` or `slides`) with what is in the file."""


@dataclass(frozen=True, slots=True)
class Move:
    """An action of an expert's. `[TEXT]` in it is the number of the element that the screen shows
    with that text."""

    action: str
    when: str = ""
    """The move is left out where the screen does not show this."""
    needs: str = ""
    """The expert waits until the screen shows this."""


@dataclass(frozen=True, slots=True)
class DesktopGoal:
    """Something that can be asked for on a set-up."""

    name: str
    wordings: tuple[str, ...]
    """Sentences that ask for it, each in other words."""
    evaluator: Mapping[str, Any]
    """In OSWorld's format."""
    moves: tuple[Move, ...]
    """How an expert reaches it, up to the word that ends the episode."""
    hint: str
    """How it is done."""
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
    """Returns the step of a set-up that puts generated files on the desktop."""
    files = [{"url": f"generated:{name}", "path": f"{DESKTOP}/{name}"} for name in names]
    return {"type": "download", "parameters": {"files": files}}


def launch(*command: str) -> dict[str, Any]:
    """Returns the step of a set-up that starts a program."""
    return {"type": "launch", "parameters": {"command": list(command)}}


def run(command: str) -> dict[str, Any]:
    """Returns the step of a set-up that runs a shell command to its end."""
    return {"type": "execute", "parameters": {"command": command, "shell": True}}


def office(program: str, name: str) -> dict[str, Any]:
    """Returns the step of a set-up that opens a file of the desktop in a part of LibreOffice."""
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
    """Returns an evaluator that is content with what a shell command prints. It uses the system's
    programs: the user may write where the desktop's own PATH begins."""
    command = f"PATH=/usr/bin:/bin; {command}"
    return {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": command, "shell": True},
        "expected": {"type": "rule", "rules": {"expected": expected}},
    }


def absent(*wordings: str, looking: tuple[str, ...] = ()) -> DesktopGoal:
    """Returns a goal that cannot be reached, because what it names is not there."""
    return DesktopGoal(
        "absent",
        wordings,
        {"func": "infeasible"},
        moves(*looking, end="fail"),
        "What is asked for may be impossible: then answer fail.",
    )
