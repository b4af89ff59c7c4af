"""Problems that an adapter rewrote: parsed from its answer, and compared with their root.

Checking the tests against independent solutions requires running programs, and happens elsewhere.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from rlanything.domains.base import InvalidTask
from rlanything_coding.answers import InvalidTest, checked_test
from rlanything_coding.fences import blocks
from rlanything_coding.problem import Example, Problem

QUESTION_CHARACTERS = (20, 4000)
MOST_TESTS = 64
_OBJECT = re.compile(r'\{\s*"(?:question|tests)"\s*:')


def rewritten(answer: str, root: Problem, least_tests: int = 4) -> Problem:
    """Returns the problem in an answer `{"question": "...", "tests": [{"input": "...", "output":
    "..."}]}`.

    The JSON is in the last block labelled `json`; without one it is the last object that begins
    with such a key. The new problem keeps the root's time limit, family and difficulty. Raises
    `InvalidTask` with the reason, also if the problem equals its root."""
    if root.entry_point:
        raise InvalidTask("a problem about a function cannot be rewritten")
    content = _object(answer)
    question = _question(content.get("question"))
    tests = _tests(content.get("tests"), least_tests)
    if _words(question).lower() == _words(root.question).lower():
        raise InvalidTask("the question is the old one")
    if _pairs(tests) <= _pairs(root.tests):
        # With the same tests, a program that solved the old problem solves this one, whatever its
        # wording.
        raise InvalidTask("the tests are the old ones")
    return replace(root, question=question, tests=tests, spec=None)


def _object(answer: str) -> dict[str, Any]:
    text, start = answer, None
    for block in blocks(answer):
        if block.label == "json":
            text, start = block.text.strip(), 0
    if start is None:
        # Only one attempt, at the last match: trying every brace would take quadratic time.
        for match in _OBJECT.finditer(answer):
            start = match.start()
    if start is None:
        raise InvalidTask('no {"question": ..., "tests": ...} found', "unreadable")
    try:
        content, _ = json.JSONDecoder().raw_decode(text, start)
    except json.JSONDecodeError as error:
        reason = f"not JSON: {error.msg} at character {error.pos}"
        raise InvalidTask(reason, "unreadable") from None
    except RecursionError:
        raise InvalidTask("not JSON: nested too deeply", "unreadable") from None
    except ValueError:
        raise InvalidTask("not JSON: a number is too long", "unreadable") from None
    if not isinstance(content, dict):
        raise InvalidTask("the JSON is no object", "unreadable")
    return content


def _question(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidTask("'question' is missing or no text", "unreadable")
    question = text.replace("\r\n", "\n").strip()
    least, most = QUESTION_CHARACTERS
    if not least <= len(question) <= most:
        raise InvalidTask(
            f"the question has {len(question)} characters; {least} to {most} are allowed"
        )
    for character in question:
        # Control characters, direction marks, zero widths, surrogates and undefined characters.
        if unicodedata.category(character)[0] == "C" and character not in "\n\t":
            raise InvalidTask(f"the question holds the unprintable U+{ord(character):04X}")
    return question


def _tests(entries: object, least: int) -> tuple[Example, ...]:
    """Returns the tests without duplicates. Raises `InvalidTask` if they are malformed,
    contradictory or too few."""
    if not isinstance(entries, list):
        raise InvalidTask("'tests' is missing or no list", "unreadable")
    if not least <= len(entries) <= MOST_TESTS:
        raise InvalidTask(f"{len(entries)} tests; {least} to {MOST_TESTS} are needed")
    tests: dict[str, Example] = {}
    for number, entry in enumerate(entries, start=1):
        given, expected = (
            (entry.get("input"), entry.get("output")) if isinstance(entry, dict) else (None, None)
        )
        if not isinstance(given, str) or not isinstance(expected, str):
            reason = f"test {number} is not an input and an output, both texts"
            raise InvalidTask(reason, "unreadable")
        try:
            test = checked_test(given, expected)
        except InvalidTest as error:
            raise InvalidTask(f"test {number}: {error}") from None
        before = tests.setdefault(_words(given), test)
        if _words(before.output) != _words(expected):
            raise InvalidTask(f"test {number} contradicts another with the same input")
    if len(tests) < least:
        raise InvalidTask(f"{len(tests)} different tests; {least} are needed")
    return tuple(tests.values())


def _pairs(tests: Collection[Example]) -> set[tuple[str, str]]:
    return {(_words(test.input), _words(test.output)) for test in tests}


def _words(text: str) -> str:
    """Returns the text with white space normalized."""
    return " ".join(text.split())
