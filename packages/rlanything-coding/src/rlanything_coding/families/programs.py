"""Programs as sequences of lines, and their execution.

Only programs built from this package's own blocks run here, in this process. Model-written programs
belong in the sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Line:
    """One step of a program."""

    says: str
    """Description of the step in a word or two."""
    code: str
    shows: str
    """Variables that hold its result, separated by blanks; "" for the line that prints it."""


Program: TypeAlias = tuple[Line, ...]


def text_of(program: Program) -> str:
    """Returns a program's source text."""
    return "\n".join(line.code for line in program)


def output_of(program: Program, given: str) -> str | None:
    """Returns the program's output for an input, or None if it fails."""
    try:
        *_, (_, printed) = trace(program, given)
    except Exception:  # a mistake in a program may raise anything
        return None
    return printed


def trace(program: Program, given: str) -> Iterator[tuple[str, str]]:
    """Yields a description of each line with its result. Raises any exception of the program."""
    lines = iter(given.split("\n"))
    printed: list[str] = []
    scope: dict[str, Any] = {
        "input": lambda: next(lines),
        "print": lambda *values: printed.append(_row(values)),
    }
    for line in program:
        exec(_compiled(line.code), scope)
        values = [_row(scope[name]) or "nothing" for name in line.shows.split()]
        yield line.says, " | ".join(values) if values else "\n".join(printed)


def _row(values: object) -> str:
    return " ".join(map(str, values)) if isinstance(values, (list, tuple)) else str(values)


@lru_cache(maxsize=4096)
def _compiled(code: str) -> CodeType:
    return compile(code, "<block>", "exec")
