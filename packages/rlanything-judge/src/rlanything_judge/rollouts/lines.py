"""The lines of a rollouts file, read one at a time and checked strictly.

A line is a JSON object that describes one trajectory; unknown keys are ignored. `SHAPE` shows a
judged trajectory, `TEXT_SHAPE` one that is still to be judged.
"""

from __future__ import annotations

import codecs
import gzip
import json
import math
import os
import reprlib
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from rlanything.domains.rounding import as_good
from rlanything.domains.thoughts import answer_start
from rlanything.records import Completion, Step, Task, Trajectory
from rlanything_judge.rollouts.formats import FormatError, LineFormat, parquet_lines

SHAPE = '{"task": "...", "trajectory": "...", "outcome": 1, "steps": [{"scores": [1, -1]}]}'
TEXT_SHAPE = (
    '{"task": "...", "trajectory": "...", "instruction": "...", "outcome": 1, "steps": '
    '[{"observation": "...", "response": "...", "next_observation": "..."}]}'
)
STANDARD = Path("-")
"""Name of stdin and stdout."""
PACKED = ".gz"
COLUMNS = ".parquet"
_PROGRESS_BYTES = 1 << 20
_CACHED_STEPS = 1 << 16
MOST_BYTES = 256 << 20
"""Longest line: one trajectory with all its texts."""
_END = b"\3"
"""Ends a step; a score is stored plus one."""


class RolloutsError(ValueError):
    """Rollouts cannot be read or signals not written; one line: place, fault, remedy."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The part of one trajectory that its signals depend on."""

    task: str
    trajectory: str
    outcome: int
    scores: bytes
    """Scores of all steps, for `read_scores`: one byte per score and one more per step."""


def read_scores(packed: bytes) -> list[list[int]]:
    """Returns S_ij [steps][m] of a `Rollout`."""
    return [[code - 1 for code in step] for step in packed.split(_END)[:-1]]


@contextmanager
def open_rollouts(path: Path) -> Iterator[tuple[Iterable[bytes], int, Callable[[], int]]]:
    """Yields a rollouts file's lines, its size on disk in bytes, and a function that returns the
    bytes read so far. A `.gz` file is unpacked, a `.parquet` file's rows become lines; `-` is
    stdin, of 0 bytes. Raises RolloutsError if the file cannot be read."""
    if path == STANDARD:
        yield sys.stdin.buffer, 0, lambda: 0
        return
    if not path.exists():
        raise RolloutsError(f"{path}: there is no such file; check the path")
    if not path.is_file():
        raise RolloutsError(f"{path}: not a regular file; save the rollouts to a file")
    try:
        raw = path.open("rb")
    except OSError as error:
        raise RolloutsError(
            f"{path}: cannot be read ({error.strerror}); check its permissions"
        ) from error
    with raw:
        size = os.fstat(raw.fileno()).st_size
        if path.suffix == COLUMNS:
            try:
                yield parquet_lines(path), size, lambda: 0
            except FormatError as error:
                raise RolloutsError(f"{path}: {error}") from error
            return
        if path.suffix != PACKED:
            yield raw, size, raw.tell
            return
        with gzip.GzipFile(fileobj=raw) as file:
            try:
                yield file, size, raw.tell
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise RolloutsError(
                    f"{path}: not a complete gzip file ({error}); pack it again"
                ) from error


def open_format(name: str, rewards: Sequence[str]) -> LineFormat:
    """Returns the format with this name, for one file. Raises RolloutsError."""
    try:
        return LineFormat(name, rewards)
    except FormatError as error:
        raise RolloutsError(str(error)) from error


def limited_lines(path: Path, file: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines of a file. Raises `RolloutsError` for a line that is too long (a packed file
    may have one of a thousand times its size), before all of it is in memory."""
    if not hasattr(file, "readline"):  # rows of a table
        yield from file
        return
    source, number = cast("BinaryIO", file), 0
    while line := source.readline(MOST_BYTES + 1):
        number += 1
        if len(line) > MOST_BYTES:
            raise RolloutsError(
                f"{path}, line {number}: longer than {MOST_BYTES >> 20} MiB; write each trajectory "
                "on a line of its own"
            )
        yield line


def read_rollouts(
    path: Path,
    file: Iterable[bytes],
    progress: Callable[[int], None],
    win_at: float | None = None,
    line_format: LineFormat | None = None,
) -> Iterator[tuple[int, Rollout]]:
    """Yields every trajectory with its line number; skips empty lines. Rollouts of another
    framework have no scores.

    `progress` is called with the bytes read, about once per MiB; `win_at` and `line_format`: as for
    `read_entries`. Raises RolloutsError at the first line that does not have the shape of
    `SHAPE`."""
    for line, entry in read_entries(path, file, SHAPE, progress, win_at, line_format):
        if line_format is not None and line_format.foreign:
            unjudged = _END * len(entry["steps"])
            rollout = Rollout(entry["task"], entry["trajectory"], entry["outcome"], unjudged)
        else:
            rollout = _rollout(line, entry)
        yield line.number, rollout


def read_texts(
    path: Path,
    file: Iterable[bytes],
    progress: Callable[[int], None],
    win_at: float | None = None,
    line_format: LineFormat | None = None,
) -> Iterator[tuple[FilePlace, dict[str, Any], Trajectory]]:
    """Yields every trajectory as the object of its line and as a judge reads it.

    `progress` is called with the bytes read, about once per MiB; `win_at` and `line_format`: as for
    `read_entries`. Raises RolloutsError at the first line that does not have the shape of
    `TEXT_SHAPE`. Optional keys: `action` and `valid` of a step, `data` and `kind` of the task."""
    for line, entry in read_entries(path, file, TEXT_SHAPE, progress, win_at, line_format):
        yield line, entry, _trajectory(line, entry)


@dataclass(frozen=True, slots=True)
class FilePlace:
    """The place of a trajectory in a file."""

    path: Path
    number: int
    """From 1."""
    shape: str
    """An example of the expected shape."""
    unit: str = "line"
    """`record` in a file that is one list."""

    def fail(self, fault: str, remedy: str | None = None) -> NoReturn:
        """Raises RolloutsError; the default remedy is to use the right shape."""
        remedy = remedy or f"write it as {self.shape}"
        raise RolloutsError(f"{self.path}, {self.unit} {self.number}: {fault}; {remedy}")


def read_entries(
    path: Path,
    file: Iterable[bytes],
    shape: str,
    progress: Callable[[int], None],
    win_at: float | None = None,
    line_format: LineFormat | None = None,
) -> Iterator[tuple[FilePlace, dict[str, Any]]]:
    """Yields the object of every non-empty line, or of every record if the file is one list or
    holds documents of several lines. `task` and `trajectory` (numbers become texts), `outcome` and
    `steps` (a list) have been checked.

    `progress` is called with the bytes read, about once per MiB; `win_at`: reward from which on an
    episode counts as won; `line_format`: reads records of other frameworks. Raises RolloutsError at
    the first bad line."""
    if win_at is not None and not math.isfinite(win_at):
        raise RolloutsError(f"--win-at is {win_at}: give the lowest reward that counts as won")
    done = told = 0
    first = True
    lines = iter(file)
    for number, line in enumerate(lines, start=1):
        done += len(line)
        if done - told >= _PROGRESS_BYTES:
            progress(done)
            told = done
        if line.isspace():
            continue
        if first and (records := _records(path, number, shape, line, lines)) is not None:
            for i, record in enumerate(records, start=1):
                place = FilePlace(path, i, shape, "record")
                yield place, _checked(place, record, win_at, line_format)
            return
        first, place = False, FilePlace(path, number, shape)
        yield place, _checked(place, _read(place, line), win_at, line_format)


def _records(
    path: Path, number: int, shape: str, line: bytes, rest: Iterable[bytes]
) -> list[Any] | None:
    """Returns the members of a file that is one list or a sequence of documents of several lines;
    None if each line is a record. A list of messages is one record."""
    begun = line.lstrip(codecs.BOM_UTF8).strip()
    if begun[:1] == b"[":
        place = FilePlace(path, number, shape, "the list on line")
        records = _read(place, line + b"".join(rest))
        if type(records) is not list:
            place.fail(f"a {type(records).__name__}, not a list")
        if records and all(type(each) is dict and "role" in each for each in records):
            return [{"messages": records}]
        return records
    if begun[-1:] not in (b"{", b"[", b","):
        return None
    place, records = FilePlace(path, number, shape, "the document on line"), []
    whole, decoder = _decoded(place, line + b"".join(rest)).rstrip(), json.JSONDecoder()
    text = whole.lstrip()
    while text:
        try:
            record, end = decoder.raw_decode(text)
        except json.JSONDecodeError as error:
            if error.pos >= len(text) or error.msg.startswith("Unterminated"):
                place.fail("not complete, and the file ends", "write the file again")
            at = number - 1 + whole.count("\n") - text.count("\n") + error.lineno
            place.fail(f"not JSON ({error.msg}, line {at})", _remedy(place))
        except (ValueError, RecursionError) as error:
            place.fail(f"not readable ({error})")
        records.append(record)
        text = text[end:].lstrip()
    return records


def _decoded(place: FilePlace, text: bytes) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place.fail(f"byte {error.start + 1} is not UTF-8", "save the file as UTF-8")


def _read(place: FilePlace, line: bytes) -> Any:
    """Returns the JSON of a line."""
    fail, last = place.fail, not line.endswith(b"\n")
    try:
        return json.loads(line.decode("utf-8-sig" if place.number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        if last and error.end == len(line):
            fail("the file ends in the middle of it", "remove the line or write the file again")
        fail(f"byte {error.start + 1} is not UTF-8", "save the file as UTF-8")
    except json.JSONDecodeError as error:
        if last:
            fail("not complete, and the file ends", "remove the line or write the file again")
        fail(f"not JSON ({error.msg}, column {error.colno})", _remedy(place))
    except (ValueError, RecursionError) as error:  # a number or nesting beyond Python's limits
        fail(f"not readable ({error})")


def _remedy(place: FilePlace) -> str:
    return f"write one trajectory a line, as {place.shape}"


def _checked(
    place: FilePlace, entry: Any, win_at: float | None, line_format: LineFormat | None
) -> dict[str, Any]:
    """Returns a line's object, as `read_entries` yields it."""
    fail = place.fail
    if type(entry) is not dict:
        fail(f"a {type(entry).__name__}, not an object", _remedy(place))
    if line_format is not None:
        try:
            entry = line_format(entry)
        except FormatError as error:
            fail(str(error), error.remedy)
    if win_at is not None:
        entry["outcome"] = _outcome(place, entry.get("reward"), win_at)
    elif line_format is not None and line_format.foreign and "outcome" not in entry:
        fail(
            f"a rollout of {line_format.name} with reward {reprlib.repr(entry['reward'])}",
            "say with --win-at from which reward on an episode is won, e.g. --win-at 1",
        )
    for key in ("task", "trajectory", "outcome", "steps"):
        if key not in entry:
            fail(f"there is no {key!r}")
    for key in ("task", "trajectory"):
        if type(entry[key]) is int:
            entry[key] = str(entry[key])
        if type(entry[key]) is not str:
            fail(f"{key!r} is {reprlib.repr(entry[key])}, not a text", "put it in quotes")
    outcome, steps = entry["outcome"], entry["steps"]
    if type(outcome) is not int or outcome not in (1, -1):
        remedy = "give 1 (won) or -1 (lost), or a `reward` and --win-at"
        fail(f"'outcome' is {reprlib.repr(outcome)}", remedy)
    if type(steps) is not list:
        fail(f"'steps' is {reprlib.repr(steps)}, not a list")
    return entry


def _outcome(place: FilePlace, reward: Any, win_at: float) -> int:
    # An integer of any length is fine; math.isfinite would overflow on a long one.
    if type(reward) is not int and (type(reward) is not float or not math.isfinite(reward)):
        there = "missing" if reward is None else f"{reprlib.repr(reward)}, no number"
        place.fail(f"'reward' is {there}", "give a number, which --win-at is compared with")
    if isinstance(reward, float):
        reward = as_good(reward, win_at)
    return 1 if reward >= win_at else -1


def _rollout(place: FilePlace, entry: dict[str, Any]) -> Rollout:
    judged: list[bytes] = []
    for i, step in enumerate(entry["steps"], start=1):
        scores = step.get("scores") if type(step) is dict else None
        if type(scores) is not list:
            place.fail(f"step {i} has no list of 'scores'")
        try:
            known = _step(*scores)
        except TypeError:  # a list or an object among the scores
            known = None
        if known is None:
            bad = next(score for score in scores if not _is_score(score))
            place.fail(
                f"step {i}: the score {reprlib.repr(bad)} is none of -1, 0 and 1",
                "write 0 for a judgement without a readable score",
            )
        judged.append(known)
    return Rollout(entry["task"], entry["trajectory"], entry["outcome"], b"".join(judged))


def _trajectory(place: FilePlace, entry: dict[str, Any]) -> Trajectory:
    if type(entry.get("instruction")) is not str:
        place.fail("'instruction' is no text")
    for i, step in enumerate(entry["steps"], start=1):
        if type(step) is not dict:
            place.fail(f"step {i} is {reprlib.repr(step)}, not an object")
        for key in ("observation", "response", "next_observation"):
            if type(step.get(key)) is not str:
                place.fail(f"step {i}: {key!r} is no text")
    return trajectory_of(entry, entry["outcome"])


def trajectory_of(entry: Mapping[str, Any], outcome: int) -> Trajectory:
    """Returns an episode of checked texts as a judge reads it. Its optional parts (`kind` and
    `data` of the task, `action` and `valid` of a step) may be anything."""
    data, kind = entry.get("data"), entry.get("kind")
    task = Task(
        entry["task"],
        entry["instruction"],
        kind if type(kind) is str else "",
        data if type(data) is dict else {},
    )
    name = trajectory_id(entry["task"], entry["trajectory"])
    return Trajectory(name, task, tuple(map(_step_of, entry["steps"])), outcome)


def trajectory_id(task: str, trajectory: str) -> str:
    """Returns an episode's id, unique across tasks because seeds derive from ids."""
    return f"{task}/{trajectory}"


def _step_of(step: Mapping[str, Any]) -> Step:
    action, response = step.get("action"), step["response"]
    return Step(
        step["observation"],
        # As in a run: reasoning is kept, but not judged.
        Completion.unsampled(response, answer_at=answer_start(response)),
        action if type(action) is str else None,
        step.get("valid") is not False,
        step["next_observation"],
    )


def _is_score(value: object) -> bool:
    # true and 1.0 equal 1, but are not scores.
    return type(value) is int and value in (-1, 0, 1)


@lru_cache(maxsize=_CACHED_STEPS, typed=True)
def _step(*scores: object) -> bytes | None:
    """Returns a packed step with these scores; None if one of them is not a score.

    A file has millions of steps and few distinct ones, so each is checked and packed once."""
    if not all(map(_is_score, scores)):
        return None
    return bytes(score + 1 for score in scores if isinstance(score, int)) + _END
