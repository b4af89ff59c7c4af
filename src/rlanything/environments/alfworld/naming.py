"""From `cabinet_bar__minus_01_dot_50_bar__plus_00` to `cabinet 1`: AlfWorld's names for things.

Gives the names of `alfworld.agents.utils.misc.Demangler` without importing alfworld, which creates a
cache folder when imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def display_names(ids: Iterable[str]) -> dict[str, str]:
    """The name of each id. Things of one kind are numbered downwards in the order of their ids."""
    ordered = sorted(ids)
    left = Counter(_kind(identity) for identity in ordered if "_bar_" in identity)
    names: dict[str, str] = {}
    for identity in ordered:
        if "_bar_" in identity:
            kind = _kind(identity)
            names[identity] = f"{kind} {left[kind]}"
            left[kind] -= 1
        else:
            names[identity] = f"{_unmangled(identity)} "
    return names


def _kind(identity: str) -> str:
    kind = identity.split("_bar_", 1)[0]
    return kind + "basin" if "basin" in identity else kind


def _unmangled(identity: str) -> str:
    for word, character in (("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ",")):
        identity = identity.replace(word, character)
    return identity
