"""Reads the answers of policy and judge: a program, and a unit test. Nothing is guessed."""

from __future__ import annotations

from rlanything.domains.coding.fences import FENCE, Block, blocks
from rlanything.domains.coding.problem import Example
from rlanything.surrogates import whole_characters

PROGRAM_CHARACTERS = 1 << 16
TEST_BYTES = 10_000
"""The most that the input, and the output, of a test that a model wrote may have."""
_PYTHON = ("python", "py", "python3")


class InvalidTest(ValueError):
    """A judge's answer that holds no unit test; the message is the reason, in one line."""


def program_in(response: str) -> str | None:
    """Returns the last fenced block labelled as Python, or the last bare one if none is labelled.

    Blocks without content do not count; the end of the last one may be missing. Returns None
    without a program, or for one longer than `PROGRAM_CHARACTERS`. Unpaired surrogates become
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
    """Returns the test made of the last block labelled `input` and the last labelled `output`.

    Both blocks must be closed: a test that was cut off asks for something else than its author
    meant. Raises `InvalidTest`."""
    last: dict[str, Block] = {}
    for block in blocks(response):
        last[block.label] = block
    for label in ("input", "output"):
        if label not in last:
            raise InvalidTest(f"no {FENCE}{label} block")
        if not last[label].closed:
            raise InvalidTest(f"the {label} block has no end")
    return checked_test(last["input"].text, last["output"].text)


def checked_test(given: str, expected: str) -> Example:
    """Returns a test as models may write it: the input ends its last line, blank lines around the
    output are cut off.

    Raises `InvalidTest` for one that is too large, has no output, or has no UTF-8 form."""
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
