"""Damaged lines of rollouts, 1,000 of them."""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlanything_judge.rollouts.lines import RolloutsError, read_rollouts

LINES = 1000
MEGABYTE = 1 << 20
PLACE = Path("rollouts.jsonl")
GOOD = {
    "task": "put a mug in shelf 日本",
    "trajectory": "a/0",
    "outcome": 1,
    "steps": [{"scores": [1, -1, 0]}, {"scores": [1]}],
    "note": {"x": [1.5, None]},
}
WRONG_TEXTS = (None, True, 1.5, [], {}, ["t"], {"t": 1})
WRONG_OUTCOMES = (0, 2, -2, 1.0, True, "1", "won", None, [], [1], {}, 10**30, float("nan"))
WRONG_STEPS = (None, 1, "steps", {}, [1], [[1]], [{}], [{"scores": 1}], [{"score": [1]}], [None])
WRONG_SCORES = (2, -2, 1.0, -1.0, True, False, "1", "", None, [1], {}, 10**30, float("inf"))
# A decoder's limits, other encodings, and what is JSON elsewhere.
ODD_LINES = (
    *(
        b"null",
        b"1",
        b'"text"',
        b"[]",
        b"NaN",
        b"{}",
        b"{",
        b"}",
        b"\x00",
        b"\xef\xbb\xbf{}",
        b"//",
    ),
    b"[" * 100_000,
    b'{"steps": ' * 10_000,
    b'{"outcome": ' + b"1" * 5000 + b"}",
    b'{"task": "' + b"x" * MEGABYTE,
    b'{"task": ' + b'"\\ud800' * 1000,
    b"\\" * MEGABYTE,
    b" " * MEGABYTE + b"x",
    json.dumps(GOOD).encode("utf-16"),
    json.dumps(GOOD).encode() * 2,
    json.dumps(GOOD).encode() + b",",
    json.dumps(GOOD).replace('"', "'").encode(),
    json.dumps(GOOD).replace("}]", "},]").encode(),
)


def damaged_lines() -> Iterator[bytes]:
    yield from ODD_LINES
    rng = random.Random(0)
    whole = json.dumps(GOOD, ensure_ascii=False)
    places = [i for i, letter in enumerate(whole) if letter in '{}[]:,"']
    for number in range(LINES - len(ODD_LINES)):
        kind = number % 5
        at = rng.randrange(1, len(whole))
        if kind == 0:  # cut off, at any byte
            raw = whole.encode()
            yield raw[: rng.randrange(1, len(raw))]
        elif kind == 1:  # punctuation lost
            at = rng.choice(places)
            yield (whole[:at] + whole[at + 1 :]).encode()
        elif kind == 2:  # bytes that no text has
            byte = rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80"))
            yield whole[:at].encode() + byte + whole[at:].encode()
        elif kind == 3:  # a control character
            yield f"{whole[:at]}{chr(rng.choice((*range(9), 11, 12)))}{whole[at:]}".encode()
        else:
            yield json.dumps(with_fault(rng)).encode()


def with_fault(rng: random.Random) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(json.dumps(GOOD))
    key = rng.choice(("task", "trajectory", "outcome", "steps"))
    kind = rng.randrange(4)
    if kind == 0:
        entry[rng.choice((key.upper(), f"{key}s", f" {key}", f"{key}\u200b"))] = entry.pop(key)
    elif kind == 1:
        steps = entry["steps"]
        scores = rng.choice(steps)["scores"]
        scores.insert(rng.randint(0, len(scores)), rng.choice(WRONG_SCORES))
    else:
        wrong = {"outcome": WRONG_OUTCOMES, "steps": WRONG_STEPS}.get(key, WRONG_TEXTS)
        entry[key] = rng.choice(wrong)
    return entry


def test_a_damaged_line_is_one_error_that_names_it_and_the_remedy() -> None:
    good = json.dumps(GOOD).encode() + b"\n"
    seen = 0
    for line in damaged_lines():
        start = time.process_time()
        with pytest.raises(RolloutsError) as caught:
            list(read_rollouts(PLACE, io.BytesIO(good + line + b"\n" + good), lambda _: None))
        assert time.process_time() - start < 1
        message = str(caught.value)
        assert message.startswith(f"{PLACE}, line 2: "), message
        assert "; " in message
        assert message.isprintable(), message
        assert len(message) < 400
        seen += 1
    assert seen == LINES
