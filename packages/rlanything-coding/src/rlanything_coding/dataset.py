"""Problems from a file in the format of the paper's data: CodeContests, LiveBench, or your own.

One JSON list, or one JSON object a line, with these keys; others are ignored:

    question         the text of the problem
    test_input       a list of texts, the program's inputs on stdin
    test_output      a list of the same length, the expected outputs
    test_time_limit  seconds for each test
    test_method      "stdio", which is also the default; or "function" for tests that call one: an
                     input is its arguments as JSON, one a line, an output its value as JSON
    test_function    the name of that function, or CLASS.METHOD
    test_tolerance   largest difference, absolute or relative, from an expected number with a point
                     or an exponent; 1e-6 by default; 0: all must be printed as expected
    test_real_numbers  true: an expected whole number also matches one with a point within it
    test_ignore_case   true: capitals do not matter
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TextIO

from rlanything.domains.base import DomainError, MissingData
from rlanything.surrogates import whole_characters
from rlanything_coding.problem import Example, Problem
from rlanything_coding.sandbox.base import MOST, TOLERANCE, Grading

_CHUNK_CHARACTERS = 1 << 20
_ENTRY_CHARACTERS = 1 << 28
"""Largest problem in characters; anything longer is taken for a malformed list."""
_BLANK = re.compile(r"\s*")
_FUNCTION = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)?")
_PARQUET = b"PAR1"


def read_problems(path: str | Path, most_tests: int | None = None) -> Iterator[tuple[str, Problem]]:
    """Yields every problem with its task id, one at a time; `most_tests` keeps only the first
    tests.

    The id depends only on the problem's text and tests, so other changes in the file do not affect
    it. A repeated problem gets a number. Raises `DomainError` at the first invalid entry."""
    file = Path(path)
    seen: Counter[str] = Counter()
    for place, entry in read_entries(file):
        problem = problem_of(place, entry, most_tests)
        name = f"{file.stem}-{_digest(problem)}"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}", problem
    if not seen:
        raise DomainError(f"{file} holds no problem: give a JSON list or JSON lines of problems")


def read_entries(
    file: Path,
    on_bytes: Callable[[int], None] | None = None,
    on_fault: Callable[[str], None] | None = None,
) -> Iterator[tuple[str, Any]]:
    """Yields the entries of a JSON list or of JSON lines, one at a time, each with its place in
    words.

    `on_bytes`: called with the number of bytes read so far; `on_fault`: called with a line about
    what is not JSON, and the rest is read as far as possible. Raises `DomainError` if the file
    cannot be read, and `MissingData` if it does not exist."""
    try:
        with file.open("rb") as raw, io.TextIOWrapper(raw, encoding="utf-8-sig") as text:
            if raw.peek(len(_PARQUET))[: len(_PARQUET)] == _PARQUET:
                remedy = "write JSON lines, such as by load_dataset(...).to_json(FILE) of datasets"
                raise DomainError(f"{file} is Parquet: {remedy}")
            for place, entry in _entries(file, text, on_fault or _raise):
                yield f"{file}, {place}", entry
                if on_bytes is not None:
                    on_bytes(raw.tell())
    except UnicodeDecodeError as error:
        raise DomainError(f"{file} is not UTF-8 text: save it as UTF-8") from error
    except OSError as error:
        raise (MissingData if isinstance(error, FileNotFoundError) else DomainError)(
            f"{file} cannot be read ({error.strerror}): give the path of a JSON or JSONL file"
        ) from error


def sample_problems(
    path: str | Path, count: int, seed: int, most_tests: int | None = None
) -> list[tuple[str, Problem]]:
    """Returns `count` problems of a file (all if there are fewer) in a random order that the seed
    fixes.

    Only `count` problems are held in memory at a time (reservoir sampling)."""
    rng = random.Random(f"problems/{seed}")
    kept: list[tuple[str, Problem]] = []
    for i, named_problem in enumerate(read_problems(path, most_tests)):
        if len(kept) < count:
            kept.append(named_problem)
        elif (at := rng.randrange(i + 1)) < count:
            kept[at] = named_problem
    rng.shuffle(kept)
    return kept


def _digest(problem: Problem) -> str:
    content = json.dumps([problem.question, *([t.input, t.output] for t in problem.tests)])
    return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()


def _entries(
    path: Path, file: TextIO, on_fault: Callable[[str], None]
) -> Iterator[tuple[str, Any]]:
    """Yields the decoded entries, each with its place in the file."""
    start = file.read(_CHUNK_CHARACTERS)
    if start.lstrip()[:1] == "[":
        yield from _list_items(path, file, start.lstrip()[1:], on_fault)
        return
    file.seek(0)
    for number, line in enumerate(file, start=1):
        if not line.isspace():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                fault = getattr(error, "msg", error)
                on_fault(f"{path}, line {number}: not JSON ({fault}): write one object a line")


def _list_items(
    path: Path, file: TextIO, text: str, on_fault: Callable[[str], None]
) -> Iterator[tuple[str, Any]]:
    """Yields the items of a JSON list, up to the first fault. `text`: what has already been read
    after the opening bracket."""
    decoder = json.JSONDecoder()
    index = at = 0
    while True:
        try:
            start = _skip_blanks(text, at)
            if text[start] == "]":
                return
            if index:
                if text[start] != ",":
                    raise json.JSONDecodeError("Expecting ',' delimiter", text, start)
                start = _skip_blanks(text, start + 1)
            entry, end = decoder.raw_decode(text, start)
        except (IndexError, ValueError, RecursionError) as error:
            pending = len(text) - at
            if _hopeless(error, text) or pending > _ENTRY_CHARACTERS:
                more = ""
            else:  # Double the pending text, so that it is decoded only a few times.
                more = file.read(max(_CHUNK_CHARACTERS, pending))
            if not more:
                fault = getattr(error, "msg", "the list has no end")
                on_fault(f"{path}, item {index}: not JSON ({fault}): write a JSON list")
                return
            text, at = text[at:] + more, 0
        else:
            yield f"item {index}", entry
            index, at = index + 1, end


def _hopeless(error: Exception, text: str) -> bool:
    """Returns whether text fails to decode regardless of what follows it."""
    if isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated"):
        # A word or an escape sequence can be incomplete only at the very end.
        return error.pos < len(text) - 16
    return isinstance(error, RecursionError)


def _skip_blanks(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def problem_of(place: str, entry: Any, most_tests: int | None = None) -> Problem:
    """Returns the problem that an entry describes. Raises `DomainError` with the place if the entry
    does not have the module's format."""
    if not isinstance(entry, dict):
        fail(place, f"{reprlib.repr(entry)} is not an object", "write one object for each problem")
    for key in ("question", "test_input", "test_output", "test_time_limit"):
        if key not in entry:
            fail(place, f"there is no {key!r}", "add it")
    method = entry.get("test_method", "stdio")
    if method not in ("stdio", "function"):
        fail(
            place,
            f"'test_method' is {reprlib.repr(method)}",
            "only 'stdio' and 'function' are supported; rewrite its tests or remove it",
        )
    function = ""
    if method == "function":
        function = entry.get("test_function")
        if not isinstance(function, str) or not _FUNCTION.fullmatch(function):
            fault = f"'test_function' is {reprlib.repr(function)}"
            fail(place, fault, "name the function, or CLASS.METHOD")
    question, limit = entry["question"], entry["test_time_limit"]
    if not isinstance(question, str) or not question.strip():
        fail(place, "'question' is not a text", "give the problem in words")
    longest = MOST["cpu_seconds"]
    if type(limit) not in (int, float) or not 0 < limit <= longest:
        fault = f"'test_time_limit' is {reprlib.repr(limit)}"
        fail(place, fault, f"give seconds above 0, {longest:g} at most")
    tolerance = entry.get("test_tolerance")
    tolerance = TOLERANCE if tolerance is None else tolerance
    if type(tolerance) not in (int, float) or not 0 <= tolerance < 1:
        fault = f"'test_tolerance' is {reprlib.repr(tolerance)}"
        fail(place, fault, "give a number from 0 to below 1")
    for key in ("test_real_numbers", "test_ignore_case"):
        if type(entry.get(key, False)) is not bool:
            fail(place, f"{key!r} is {reprlib.repr(entry[key])}", "give true or false")
    for key in ("test_input", "test_output"):
        texts = entry[key]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            fail(place, f"{key!r} is not a list of texts", "put each test in quotes")
    given, expected = entry["test_input"], entry["test_output"]
    if len(given) != len(expected) or not given:
        fail(
            place,
            f"{len(given)} inputs and {len(expected)} outputs",
            "give as many of each, and at least one",
        )
    if function:
        _check_json(place, given, expected)
    pairs = zip(given[:most_tests], expected[:most_tests], strict=True)
    return Problem(
        question=whole_characters(question.replace("\r\n", "\n").strip()),
        tests=tuple(Example(whole_characters(i), whole_characters(o)) for i, o in pairs),
        time_limit_seconds=float(limit),
        grading=Grading(
            float(tolerance),
            entry.get("test_real_numbers", False),
            entry.get("test_ignore_case", False),
        ),
        entry_point=function,
    )


def _check_json(place: str, given: list[str], expected: list[str]) -> None:
    """Raises `DomainError` if arguments or values of a function are not JSON."""
    for text in (*(line for each in given for line in each.splitlines()), *expected):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            fault = f"{reprlib.repr(text)} is not JSON"
            fail(place, fault, "give arguments and values of a function as JSON, one a line")


def _raise(fault: str) -> NoReturn:
    raise DomainError(fault)


def fail(place: str, fault: str, remedy: str) -> NoReturn:
    """Raises `DomainError` with a one-line message for the user."""
    raise DomainError(f"{place}: {fault}: {remedy}")
