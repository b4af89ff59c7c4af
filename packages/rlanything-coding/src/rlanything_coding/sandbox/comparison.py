"""Compares an output with the expected one, token by token, as programming contests do."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator

from rlanything_coding.sandbox.base import EXACT, Grading, Job, Verdict

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_LONGEST = 400
"""Longest number in characters that is compared by value."""
_ROUNDING = 1e-15
"""Relative rounding error of parsing a number."""
_PIECE = 1 << 16


def verdict_on(stdout: bytes, expected: str | None, grading: Grading) -> Verdict:
    """Returns OK or WRONG, for a program that ended cleanly."""
    if expected is None:
        return Verdict.OK
    said = stdout.decode("utf-8", "surrogateescape")
    return Verdict.OK if same_tokens(said, expected, grading) else Verdict.WRONG


def same_tokens(said: str, expected: str, grading: Grading = EXACT) -> bool:
    """Returns whether two texts are equal apart from white space and what `grading` allows. A
    number matches only a finite one."""
    if grading.ignore_case:
        said, expected = said.lower(), expected.lower()
    theirs = expected.split()
    # Do not split what follows the expected tokens: a flood would become millions of tokens.
    ours = said.split(None, len(theirs))
    return len(ours) == len(theirs) and all(
        one == other or (grading.tolerance > 0 and _close(one, other, grading))
        for one, other in zip(ours, theirs, strict=True)
    )


def _close(said: str, expected: str, grading: Grading) -> bool:
    if _whole(expected) and (not grading.real_numbers or _whole(said)):
        return False
    if max(len(said), len(expected)) > _LONGEST:
        return False
    if not (_NUMBER.fullmatch(said) and _NUMBER.fullmatch(expected)):
        return False
    one, other = float(said), float(expected)
    allowed = (grading.tolerance + _ROUNDING) * max(1.0, abs(other))
    return math.isfinite(one) and math.isfinite(other) and abs(one - other) <= allowed


def _whole(token: str) -> bool:
    return token.lstrip("+-").isdigit()


def kept(job: Job, verdict: Verdict, stdout: bytes) -> tuple[bytes, str]:
    """Returns the part of stdout that a job's result keeps, and the digest for comparing what was
    cut."""
    if job.kept_bytes is None:
        return stdout, ""
    clean = verdict in (Verdict.OK, Verdict.WRONG)
    return stdout[: job.kept_bytes], _digest(stdout) if clean else ""


def _digest(stdout: bytes) -> str:
    """Returns a digest that ignores white space."""
    state = hashlib.blake2b(digest_size=16)
    for piece in _levelled(stdout):
        state.update(piece)
    return state.hexdigest()


def _levelled(text: bytes) -> Iterator[bytes]:
    """Yields the words of a text separated by single blanks, in pieces: an output may have
    millions."""
    apart = begun = False
    for start in range(0, len(text), _PIECE):
        piece = text[start : start + _PIECE]
        words = piece.split()
        if words:
            if begun and (apart or piece[:1].isspace()):
                yield b" "
            yield b" ".join(words)
            begun = True
            apart = piece[-1:].isspace()
        else:
            apart = True
