"""Seeds: every random choice has one of its own, derived from the run's seed and what it is for.

Results therefore depend neither on how work is scheduled nor on how many workers do it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def derive(seed: int, *purpose: str | int) -> int:
    """Returns a 63-bit seed; the same arguments give the same one on every machine."""
    text = "\x1f".join([str(seed), *(str(part) for part in purpose)])
    # Names that others give may hold half a character.
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 1


def dealt(items: Sequence[T], count: int, rng: Random) -> list[T]:
    """Returns `count` items, every one as often as the others (within one), in rounds of a random
    order each."""
    rounds = -(-count // len(items))
    return [item for _ in range(rounds) for item in rng.sample(items, len(items))][:count]
