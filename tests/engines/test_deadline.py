"""Generation that takes too long ends, in whichever thread it is asked for."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlanything.engines.base import Request, Sampling
from rlanything.engines.deadline import GenerationTimeout, TimedEngine


class Endless:
    """An engine that never answers."""

    def generate(self, requests: list[Request], sampling: Sampling) -> list[list[object]]:
        while True:
            time.sleep(0.001)

    def sync_weights(self) -> None: ...
    def release_cache(self) -> None: ...


def test_a_thread_that_generates_has_a_limit_too() -> None:
    engine = TimedEngine(Endless(), 0.1, "judge")  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(engine.generate, [], Sampling(1.0, 8))
        with pytest.raises(GenerationTimeout, match=r"raise judge\.timeout_seconds"):
            asked.result(30)
