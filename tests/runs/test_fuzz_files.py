"""Damaged files, 1,500 of them: rollouts as JSON lines, and the pool of a checkpoint."""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlanything.algorithm.curriculum import Candidate, Pool, PoolError
from rlanything.records import Task
from rlanything_judge.rollouts.lines import RolloutsError, read_rollouts

LINES = 1000
POOLS = 500
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


@pytest.fixture(scope="module")
def saved() -> str:
    """A pool with everything in it: a history, a candidate, something quarantined."""
    pool = Pool(
        [Task("a", "do a", "kind", {"x": [1]}), Task("b", "do b"), Task("c", "c")], 0.2, 0.8
    )
    for slot in ("a", "b"):
        pool.record(slot, slot, 0.9)
        pool.propose(slot, Candidate(Task(f"{slot}@1", "more"), "harder", 0.9, ("why",), 1))
    pool.settle("a", 0.5, 2)
    pool.quarantine("c", "c", "it hangs", 2)
    return pool.to_json()


def spots(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place of a pool's JSON, but for what is the domain's own."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in items:
        yield (*path, name)
        if isinstance(inner, dict | list) and name != "data":
            yield from spots(inner, (*path, name))


def damaged_pools(saved: str) -> Iterator[str]:
    rng = random.Random(0)
    everywhere = list(spots(json.loads(saved)))
    yield from ("", "null", "[]", "3", '"pool"', "NaN", "{}", '{"format": null}', "[" * 100_000)
    yield from (saved + saved, saved[1:], saved.replace('"', "'"), "\ufeff" + saved, "\x00" + saved)
    yield "x" * MEGABYTE
    # Deeper than any limit of recursion that something in this process may have set.
    deep = "[" * 100_000 + "]" * 100_000
    yield saved.replace('{"x": [1]}', f'{{"x": {deep}}}')
    for number in range(POOLS - 16):
        if number % 4 == 0:
            yield saved[: rng.randrange(1, len(saved))]
            continue
        read = json.loads(saved)
        *parents, last = rng.choice(everywhere)
        inner = read
        for name in parents:
            inner = inner[name]
        if number % 4 == 1 and isinstance(last, str) and "quarantined" not in parents:
            del inner[last]
        elif number % 4 == 2 and isinstance(inner, dict) and "quarantined" not in parents:
            inner["nonsense"] = 1
        else:
            others = (None, 3, "x", 0.5, float("nan"), [], {}, [None], {"x": 1})
            wrong = [one for one in others if not fits(one, last, inner[last])]
            inner[last] = rng.choice(wrong)
        yield json.dumps(read)


def fits(value: Any, name: str | int, now: Any) -> bool:
    """Whether a pool may have the value there."""
    if name == "data":
        return isinstance(value, dict)
    if name in ("pending", "accuracy", "candidate_accuracy") and value is None:
        return True
    if isinstance(now, str) or name == "instruction":
        return isinstance(value, str)
    if name in ("history", "critics", "quarantined") and value in ([], {}):
        return type(value) is type(now)
    if name in ("accuracy", "candidate_accuracy") or isinstance(now, int | float):
        return isinstance(value, int | float) and value == value
    return False


def test_a_damaged_pool_is_one_error_with_the_remedy(saved: str) -> None:
    assert Pool.from_json(saved).to_json() == saved
    seen = 0
    for text in damaged_pools(saved):
        start = time.process_time()
        with pytest.raises(PoolError) as caught:
            Pool.from_json(text)
        assert time.process_time() - start < 1
        message = str(caught.value)
        assert "checkpoint" in message or "resume with the version" in message
        assert message.isprintable(), message
        seen += 1
    assert seen == POOLS
