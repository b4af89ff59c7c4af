"""Reads the answers of policy and judge: a program, and a unit test. It never guesses."""

from __future__ import annotations

import re

from rlanything.surrogates import whole_characters
from rlanything_coding.fences import FENCE, Block, blocks
from rlanything_coding.problem import Example

PROGRAM_CHARACTERS = 1 << 16
TEST_BYTES = 10_000
"""Largest size in bytes of the input, and of the output, of a model-written test."""
_PYTHON = ("python", "py", "python3")
_HEADING = re.compile(r"\*\*test (input|output)[ \t]*:?[ \t]*\*\*[ \t]*:?", re.IGNORECASE)
_REMARKS = re.compile(r"^[ \t]*\*\*explanation\b", re.IGNORECASE | re.MULTILINE)
_LABELS = ("text", "plaintext", "txt", "input", "output", "stdin", "stdout", *_PYTHON)


class InvalidTest(ValueError):
    """A judge's answer without a unit test; the message is the reason, in one line."""


def program_in(response: str) -> str | None:
    """Returns the last fenced block labelled as Python, or the last bare one if none is labelled.

    Empty blocks do not count; the closing fence of the last one may be missing. Returns None if
    there is no program, or if it is longer than `PROGRAM_CHARACTERS`. Unpaired surrogates become
    U+FFFD, so that every program can be written to a file."""
    labelled = bare = ""
    for block in blocks(response):
        if not block.text.strip():
            continue
        if block.label in _PYTHON:
            labelled = block.text
        elif not block.label:
            bare = block.text
    program = labelled or bare
    if not program or len(program) > PROGRAM_CHARACTERS:
        return None
    return f"{whole_characters(program)}\n"


def unit_test_in(response: str) -> Example:
    """Returns the test in the last block labelled `input` and the last labelled `output`.

    Both blocks must be closed: a test that was cut off tests something other than its author meant.
    Raises `InvalidTest`."""
    last: dict[str, Block] = {}
    for block in blocks(response):
        last[block.label] = block
    for label in ("input", "output"):
        if label not in last:
            raise InvalidTest(f"no {FENCE}{label} block")
        if not last[label].closed:
            raise InvalidTest(f"the {label} block has no end")
    return checked_test(last["input"].text, last["output"].text)


def unit_test_under_headings(response: str) -> Example:
    """Returns the test under the last two headings, `**Test Input:**` and then `**Test Output:**`.

    This is the format of the paper's test writers. After each heading comes a block between
    backticks, whose text may begin on the line of the backticks, or plain text up to the next
    heading. Raises `InvalidTest`, also for ambiguous answers: headings in another order, or a block
    whose first line may be a label."""
    text = response.replace("\r\n", "\n")
    headings = list(_HEADING.finditer(text))[-2:]
    if [heading[1].lower() for heading in headings] != ["input", "output"]:
        raise InvalidTest("the last headings are not **Test Input:** and then **Test Output:**")
    first, second = headings
    given = _under_heading("input", text[first.end() : second.start()])
    expected = _under_heading("output", text[second.end() :])
    if not given.strip():
        raise InvalidTest("the input is empty")
    return checked_test(given, expected)


def _under_heading(label: str, text: str) -> str:
    body = text.lstrip()
    if not body.startswith(FENCE):
        remarks = _REMARKS.search(body)
        return body[: remarks.start() if remarks else None].strip()
    end = body.find(FENCE, len(FENCE))
    if end < 0:
        raise InvalidTest(f"the {label} block has no end")
    same_line, _, below = body[len(FENCE) : end].partition("\n")
    if below.strip() and same_line.strip().lower() in _LABELS:
        raise InvalidTest(f"the {label} begins with {same_line.strip()!r}, which may be a label")
    return f"{same_line}\n{below}".strip("\n") if same_line.strip() else below.strip("\n")


def checked_test(given: str, expected: str) -> Example:
    """Returns a normalized model-written test: the input ends with a newline, and blank lines
    around the output are removed.

    Raises `InvalidTest` if it is too large, has no output, or cannot be encoded as UTF-8."""
    for label, text in (("input", given), ("output", expected)):
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise InvalidTest(f"the {label} holds half of a character") from None
        if size > TEST_BYTES:
            raise InvalidTest(f"the {label} has {size} bytes; {TEST_BYTES} are allowed")
        if "\0" in text:
            raise InvalidTest(f"the {label} holds a NUL character")
    if not expected.strip():
        raise InvalidTest("the output is empty")
    ended = given if given.endswith("\n") or not given else f"{given}\n"
    return Example(ended, expected.strip("\n"))
