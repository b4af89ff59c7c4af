"""JSON as its standard has it: Python's takes and writes numbers that other readers refuse."""

from __future__ import annotations

import json
import math
from typing import Any


def read_json(text: str | bytes) -> Any:
    """Returns what a JSON text says. Raises ValueError for anything that is not JSON, for NaN,
    Infinity and numbers out of range, and for an object that has a name twice; RecursionError for
    one that is nested too deeply."""
    return json.loads(
        text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_without_twins
    )


def finite_json(value: Any) -> Any:
    """Returns JSON data with None for every number that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite_json(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(member) for member in value]
    return value


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON's")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits:.40} is out of range")
    return number


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a name twice")
    return members
