"""Damaged pools of a checkpoint, 500 of them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rlanything.algorithm.curriculum import Candidate, Pool, PoolError
from rlanything.records import Task

POOLS = 500
MEGABYTE = 1 << 20


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
