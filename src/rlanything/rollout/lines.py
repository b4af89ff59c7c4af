"""The lines of a file of judged rollouts, read one at a time and checked strictly.

Each is a JSON object that describes one trajectory (`SHAPE`); its other keys are ignored.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NoReturn

SHAPE = '{"task": "...", "trajectory": "...", "outcome": 1, "steps": [{"scores": [1, -1]}]}'
_PROGRESS_BYTES = 1 << 20
_CACHED_STEPS = 1 << 16
_END = b"\3"
"""Ends a step; a score is stored as itself plus one."""


class RolloutsError(ValueError):
    """Rollouts cannot be read or signals not written; one line: place, fault, remedy."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One trajectory, as far as its signals depend on it."""

    task: str
    trajectory: str
    outcome: int
    scores: bytes
    """Those of all steps, for `read_scores`: a byte each, and one more a step."""


def read_scores(packed: bytes) -> list[list[int]]:
    """Returns S_ij [steps][m] of a `Rollout`."""
    return [[code - 1 for code in step] for step in packed.split(_END)[:-1]]


def read_rollouts(
    path: Path, file: BinaryIO, progress: Callable[[int], None]
) -> Iterator[tuple[int, Rollout]]:
    """Yields every trajectory with the number of its line, from the start, without empty lines.

    `progress` is called with the bytes read, about once per MiB. Raises RolloutsError at the first
    line that is not exactly as `SHAPE` has it."""
    file.seek(0)
    done = told = 0
    for number, line in enumerate(file, start=1):
        done += len(line)
        if done - told >= _PROGRESS_BYTES:
            progress(done)
            told = done
        if not line.isspace():
            yield number, _parse(path, number, line)


def _parse(path: Path, number: int, line: bytes) -> Rollout:
    def fail(fault: str, remedy: str) -> NoReturn:
        raise RolloutsError(f"{path}, line {number}: {fault}; {remedy}")

    last = not line.endswith(b"\n")
    try:
        entry = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        if last and error.end == len(line):
            fail("the file ends in the middle of it", "remove the line or write the file again")
        fail(f"byte {error.start + 1} is not UTF-8", "save the file as UTF-8")
    except json.JSONDecodeError as error:
        if last:
            fail("not complete, and the file ends", "remove the line or write the file again")
        fail(
            f"not JSON ({error.msg}, column {error.colno})",
            f"write one trajectory a line, as {SHAPE}",
        )
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond Python's limits
        fail(f"not readable ({error})", f"write it as {SHAPE}")
    if type(entry) is not dict:
        fail(
            f"a {type(entry).__name__}, not an object",
            f"write one trajectory a line, as {SHAPE}",
        )
    for key in ("task", "trajectory", "outcome", "steps"):
        if key not in entry:
            fail(f"there is no {key!r}", f"write it as {SHAPE}")
    for key in ("task", "trajectory"):
        if type(entry[key]) is not str:
            fail(f"{key!r} is {reprlib.repr(entry[key])}, not a text", "put it in quotes")
    outcome, steps = entry["outcome"], entry["steps"]
    if type(outcome) is not int or outcome not in (1, -1):
        fail(f"'outcome' is {reprlib.repr(outcome)}", "give 1 (won) or -1 (lost)")
    if type(steps) is not list:
        fail(f"'steps' is {reprlib.repr(steps)}, not a list", f"write it as {SHAPE}")
    judged: list[bytes] = []
    for i, step in enumerate(steps, start=1):
        scores = step.get("scores") if type(step) is dict else None
        if type(scores) is not list:
            fail(f"step {i} has no list of 'scores'", f"write it as {SHAPE}")
        try:
            known = _step(*scores)
        except TypeError:  # a list or an object among the scores
            known = None
        if known is None:
            bad = next(score for score in scores if not _is_score(score))
            fail(
                f"step {i}: the score {reprlib.repr(bad)} is none of -1, 0 and 1",
                "write 0 for a judgement without a readable score",
            )
        judged.append(known)
    return Rollout(entry["task"], entry["trajectory"], outcome, b"".join(judged))


def _is_score(value: object) -> bool:
    # true and 1.0 equal 1, but are not meant as scores
    return type(value) is int and value in (-1, 0, 1)


@lru_cache(maxsize=_CACHED_STEPS, typed=True)
def _step(*scores: object) -> bytes | None:
    """Returns a packed step with these scores; None if one of them is no score.

    A file has millions of steps and few different ones, so each is checked and packed once."""
    if not all(map(_is_score, scores)):
        return None
    return bytes(score + 1 for score in scores if isinstance(score, int)) + _END
