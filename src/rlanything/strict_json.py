"""Standard JSON; Python's own module also accepts and writes NaN and infinities."""

from __future__ import annotations

import json
import math
from typing import Any


def read_json(text: str | bytes) -> Any:
    """Returns the value of a JSON text. Raises ValueError for invalid JSON, for NaN, Infinity and
    numbers out of range, and for duplicate names in an object; RecursionError for too deep
    nesting."""
    return json.loads(
        text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_without_twins
    )


def finite_json(value: Any) -> Any:
    """Returns JSON data with None for NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite_json(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(member) for member in value]
    return value


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


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
