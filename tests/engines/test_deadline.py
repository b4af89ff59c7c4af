"""Generation that takes too long ends, in whichever thread it is asked for."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rlanything.engines.base import Request, Sampling
from rlanything.engines.deadline import GenerationTimeout, TimedEngine


class Endless:
    """An engine that never answers."""

    def generate(
        self, requests: list[Request], sampling: Sampling, on_samples: Any = None
    ) -> list[list[object]]:
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


HANGS = """
import signal, time
from rlanything.engines import deadline
from rlanything.engines.base import Sampling

class Hangs:
    def generate(self, requests, sampling, on_samples=None):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # as in a library's endless loop
        time.sleep(60)

deadline.GRACE_SECONDS = 0.1
deadline.TimedEngine(Hangs(), 0.1, "judge").generate([], Sampling(1.0, 8))
"""


def test_a_call_that_never_returns_to_python_ends_the_process_and_says_where() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=50
    )
    assert ended.returncode == 1
    assert "in generate" in ended.stderr
