"""Faults of a recipe in one line: `file: key: what is wrong`."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from rlanything.config.yaml import dotted

_SECRET = ("url", "key_variable")
"""Keys where a user may have written a secret by mistake: their values are never repeated."""


class RecipeError(ValueError):
    """A recipe cannot be used; the message names the file, the key and the remedy in one line."""


def first_problem(error: ValidationError, data: object) -> str:
    """Returns the first of pydantic's complaints about `data` as `key: what is wrong`."""
    problems = error.errors(include_url=False)
    problem = problems[0]
    given = problem["input"]
    key = _written(problem["loc"], data)
    message = " ".join(problem["msg"].removeprefix("Value error, ").split())
    if problem["type"] == "unknown_key":
        key.append(problem.get("ctx", {})["key"])
    elif problem["type"] == "missing":
        key.append(problem["loc"][-1])
        message = "missing; add it"
    elif problem["type"] == "union_tag_not_found":
        message = "missing its name; say which one it is, such as {name: embedded}"
    else:
        message = f"{message[0].lower()}{message[1:]}"
        if key[-1:] not in [[name] for name in _SECRET] and not isinstance(given, dict):
            message += f" (got {reprlib.repr(given)})"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{dotted(key) or 'recipe'}: {message}{more}"


def _written(location: Sequence[int | str], data: Any) -> list[int | str]:
    """Returns the key that pydantic means, as far as the recipe has it: pydantic also names the
    member of a union that it tried, a level that no recipe has."""
    key: list[int | str] = []
    for part in location:
        try:
            data = data[part]
        except (TypeError, LookupError):
            continue
        key.append(part)
    return key
