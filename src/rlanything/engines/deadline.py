"""A time limit for generation: a call that hangs must not hang the run."""

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
"""A call that does not even return to Python by then is ended with its process."""


class GenerationTimeout(ValueError):
    """Generation took too long; the message is one line with the remedy."""


class TimedEngine:
    """An engine whose calls may take `seconds` each; `name` is the role it serves."""

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
        # The end comes between two Python instructions, so not for a library that hangs.
        # To the process's own stderr: what stands in for it, in a notebook say, is no file.
        # One timer serves the whole process: it is the main thread's.
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
