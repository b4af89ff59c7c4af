"""A time limit for generation, so that a hanging call does not hang the run."""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rlanything.engines.alarm import in_main_thread, raising_after
from rlanything.engines.base import Engine, Request, Sampling
from rlanything.records import Completion

GRACE_SECONDS = 30.0
"""Extra time after which a call that never returned to Python is ended with its process."""


class GenerationTimeout(ValueError):
    """Generation took too long; the message is one line with the remedy."""


class TimedEngine:
    """An engine with a time limit of `seconds` per call; `name`: the role it serves."""

    def __init__(self, engine: Engine, seconds: float, name: str) -> None:
        self._engine = engine
        self._seconds = seconds
        self._name = name

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Completion]]:
        """Raises `GenerationTimeout`."""
        with self._deadline(len(requests)):
            return self._engine.generate(requests, sampling)

    def sync_weights(self) -> None:
        self._engine.sync_weights()

    def release_cache(self) -> None:
        self._engine.release_cache()

    @contextmanager
    def _deadline(self, requests: int) -> Iterator[None]:
        # The exception arrives between two Python instructions, so not while a library hangs;
        # faulthandler covers that. It needs the real stderr, because a notebook's is not a file,
        # and has one timer per process, which the main thread uses.
        stderr = sys.__stderr__ if in_main_thread() else None
        if stderr is not None:
            limit = self._seconds + GRACE_SECONDS
            faulthandler.dump_traceback_later(limit, exit=True, file=stderr)
        expired = GenerationTimeout(
            f"{self._name}: generating for {requests} prompts took longer than "
            f"{self._seconds:g} s; raise {self._name}.timeout_seconds, or ask for less at once "
            "(environment.parallel_episodes, max_tokens)"
        )
        try:
            with raising_after(self._seconds, expired, signal.ITIMER_REAL):
                yield
        finally:
            if stderr is not None:
                faulthandler.cancel_dump_traceback_later()
