"""Seeds: every random choice has one of its own, derived from the run's seed and what it is for.

Results therefore depend neither on how work is scheduled nor on how many workers do it.
"""

from __future__ import annotations

import hashlib


def derive(seed: int, *purpose: str | int) -> int:
    """Returns a 63-bit seed; the same arguments give the same one on every machine."""
    text = "\x1f".join([str(seed), *(str(part) for part in purpose)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
