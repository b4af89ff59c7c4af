"""Programming problems and their unit tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rlanything_coding.sandbox.base import DEFAULT_GRADING, Grading


@dataclass(frozen=True, slots=True)
class Example:
    """One unit test: the text a program reads from stdin, and the text it must print. For a
    function: its arguments as JSON, one a line, and the value it must return as JSON."""

    input: str
    output: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A programming problem. A program solves it by passing every test."""

    question: str
    """The text that the policy and the judge read."""
    tests: tuple[Example, ...]
    """The ground truth; empty if `check` decides."""
    time_limit_seconds: float = 1.0
    """Time limit in seconds for each test, or for `check` as a whole."""
    grading: Grading = DEFAULT_GRADING
    """Rules for comparing what is printed, or returned, with what is expected."""
    family: str = ""
    """Embedded family that made it; "" for a problem from a file."""
    difficulty: int = 0
    """1 to 5 within its family; 0 if unknown."""
    check: str | None = None
    """Code that calls `entry_point` and raises an exception if it is wrong; None: `tests`
    decide."""
    entry_point: str = ""
    """Function of the program that `check` or the tests call, or CLASS.METHOD; "": tests are about
    stdin and stdout."""
    spec: Mapping[str, Any] | None = None
    """The family's spec of the problem (see `families`); None for a problem that no family made."""

    def to_data(self) -> dict[str, Any]:
        """Returns the problem as plain JSON values for `Task.data`; defaults are omitted."""
        data: dict[str, Any] = {
            "question": self.question,
            "tests": [[test.input, test.output] for test in self.tests],
            "time_limit_seconds": self.time_limit_seconds,
        }
        optional = {
            "family": self.family,
            "difficulty": self.difficulty,
            "check": self.check,
            "entry_point": self.entry_point,
            "spec": None if self.spec is None else dict(self.spec),
        }
        if self.grading != DEFAULT_GRADING:
            data["grading"] = asdict(self.grading)
        return data | {key: value for key, value in optional.items() if value}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Problem:
        """Returns the problem from the result of `to_data`."""
        made = {"tests": tuple(Example(*pair) for pair in data["tests"])}
        return cls(**{**data, **made, "grading": Grading(**data.get("grading", {}))})
