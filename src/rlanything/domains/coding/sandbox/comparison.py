"""Compares an output with the expected one, token by token, as competitive judges do."""

from __future__ import annotations

import math

from rlanything.domains.coding.sandbox.base import Verdict


def verdict_on(stdout: bytes, expected: str | None, tolerance: float | None) -> Verdict:
    """Returns OK or WRONG, for a program that ended cleanly."""
    if expected is None:
        return Verdict.OK
    said = stdout.decode("utf-8", "surrogateescape")
    return Verdict.OK if same_tokens(said, expected, tolerance) else Verdict.WRONG


def same_tokens(said: str, expected: str, tolerance: float | None = None) -> bool:
    """Returns whether two texts are equal apart from white space; with a tolerance, finite numbers
    may differ by it, absolutely or relative to the expected one."""
    ours, theirs = said.split(), expected.split()
    if ours == theirs:
        return True
    if tolerance is None or len(ours) != len(theirs):
        return False
    return all(
        one == other or _close(one, other, tolerance)
        for one, other in zip(ours, theirs, strict=True)
    )


def _close(said: str, expected: str, tolerance: float) -> bool:
    try:
        one, other = float(said), float(expected)
    except ValueError:
        return False
    if not (math.isfinite(one) and math.isfinite(other)):
        return one == other
    return abs(one - other) <= tolerance * max(1.0, abs(other))
