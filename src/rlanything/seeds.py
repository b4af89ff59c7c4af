"""Seeds: every random choice has its own, derived from the run's seed and its purpose.

Results therefore depend neither on scheduling nor on the number of workers.
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
    # Foreign names may contain half a surrogate pair.
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 1


def dealt(items: Sequence[T], count: int, rng: Random) -> list[T]:
    """Returns `count` items in rounds of random order, so that item counts differ by at most
    one."""
    rounds = -(-count // len(items))
    return [item for _ in range(rounds) for item in rng.sample(items, len(items))][:count]
