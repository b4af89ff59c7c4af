"""Problems of a recipe in one line: `file: key: what is wrong`."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rlanything.config.trust import CODE, KEYS_VARIABLE, SECRET
from rlanything.config.yaml import dotted, visible

_SECRET = ("url", "key_variable")
"""Keys that may hold a secret by mistake; messages never quote their values."""


class RecipeError(ValueError):
    """A recipe cannot be used; the message names the file, the key and the remedy in one line."""


class TrustError(RecipeError):
    """A recipe names code or a secret that its user has not allowed."""


def refused_trust(error: ValidationError, data: object) -> str | None:
    """Returns a message about all code, or else the first secret, that `data` names without
    permission; None: pydantic only reports other problems."""
    problems = error.errors(include_url=False)
    named = [(_key(problem, data), problem.get("ctx", {})) for problem in problems]
    code = [
        f"{dotted(key)}: {visible(words['name']):.200}"
        for problem, (key, words) in zip(problems, named, strict=True)
        if problem["type"] == CODE
    ]
    if code:
        return (
            f"{', '.join(code)} is code, which would be run: if you trust it, say so "
            "each time with --allow-code (in Python allow_code=True)"
        )
    for problem, (key, words) in zip(problems, named, strict=True):
        if problem["type"] == SECRET:
            variable, host = words["name"], words["host"]
            granted = variable if host is None else f"{variable}@{host}"
            return (
                f"{dotted(key)}: the environment variable {variable} would be sent"
                f"{'' if host is None else f' to {host}'}: if it should, pass "
                f"{dotted(key)}={variable} yourself, or set {KEYS_VARIABLE}={granted}; if the "
                "endpoint needs no key, pass null"
            )
    return None


def first_problem(error: ValidationError, data: object, *place: str) -> str:
    """Returns the first of pydantic's problems with `data` as `key: what is wrong`; `place`: the
    keys of the recipe that lead to `data`."""
    problems = error.errors(include_url=False)
    problem = problems[0]
    given = problem["input"]
    key = _key(problem, data)
    message = " ".join(problem["msg"].removeprefix("Value error, ").split())
    if problem["type"] == "missing":
        message = "missing; add it"
    elif problem["type"] in ("union_tag_not_found", "union_tag_invalid"):
        message = "say what the role does with does: acts, scores or rewrites"
    elif problem["type"] in ("tuple_type", "sequence_str") or (
        problem.get("ctx", {}).get("class") == "Sequence"
    ):
        message = f"write a list, as [{visible(str(given)):.80}]"
    elif problem["type"] in ("model_type", "dict_type", "model_attributes_type"):
        named = key[-1:] in (["domain"], ["engine"], ["learner"]) or key[:-1] == ["domains"]
        named = named and isinstance(given, str)
        example = f"name: {visible(given):.80}" if named else "key: value"
        message = f"write it in braces, as {{{example}}} (got {reprlib.repr(given)})"
    elif problem["type"] != "unknown_key":
        message = f"{message[0].lower()}{message[1:]}"
        if key[-1:] not in [[name] for name in _SECRET] and not isinstance(given, dict):
            message += f" (got {reprlib.repr(given)})"
    else:
        known = str(problem.get("ctx", {}).get("known"))
        if near := get_close_matches(str(key[-1]), known.split(", "), 1):
            message = f"unknown key, did you mean {near[0]}? known here: {known}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{dotted([*place, *key]) or 'recipe'}: {message}{more}"


def first_key(error: ValidationError, data: object) -> tuple[str, bool]:
    """Returns the dotted key of the first problem, and whether it is an unknown one."""
    problem = error.errors(include_url=False)[0]
    return dotted(_key(problem, data)), problem["type"] == "unknown_key"


def _key(problem: ErrorDetails, data: object) -> list[int | str]:
    """Returns the key of one of pydantic's problems with `data`."""
    key = _written(problem["loc"], data)
    if problem["type"] == "missing":
        key.append(problem["loc"][-1])
    elif "key" in (context := problem.get("ctx", {})):  # set by our own validators
        key.append(context["key"])
    listed = key[:3] == ["domain", "options", "worlds"]  # written as `domains`
    return ["domains", *key[3:]] if listed else key


def _written(location: Sequence[int | str], data: Any) -> list[int | str]:
    """Returns pydantic's location without levels that the recipe lacks, such as the member of a
    union that pydantic tried."""
    key: list[int | str] = []
    for part in location:
        try:
            data = data[part]
        except (TypeError, LookupError):
            continue
        key.append(part)
    return key
