"""The sections of a recipe, found from the types of its fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel


def sections_in(kind: Any) -> Iterator[type[BaseModel]]:
    """Yields the sections that a type is made of: itself, members of unions, values of mappings."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for inner in get_args(kind):
        yield from sections_in(inner)
