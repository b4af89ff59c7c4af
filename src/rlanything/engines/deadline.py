"""A time limit for generation, so that a hanging call does not hang the run."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rlanything.alarm import raising_after
from rlanything.engines.base import Engine, OnSamples, Request, Sampling
from rlanything.records import Completion

GRACE_SECONDS = 30.0
"""Extra time after which a call that never returned to Python is ended with its process."""
WATCHDOG_SECONDS = 1.0
"""Interval at which the deadlines of calls are checked."""


class GenerationTimeout(ValueError):
    """Generation took too long; the message is one line with the remedy."""


class TimedEngine:
    """An engine with a time limit of `seconds` per call; `name`: the role it serves."""

    def __init__(self, engine: Engine, seconds: float, name: str) -> None:
        self._engine = engine
        self._seconds = seconds
        self._name = name

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_samples: OnSamples | None = None,
    ) -> list[list[Completion]]:
        """Raises `GenerationTimeout`."""
        with self._deadline(len(requests)):
            return self._engine.generate(requests, sampling, on_samples)

    def sync_weights(self) -> None:
        self._engine.sync_weights()

    def release_cache(self) -> None:
        self._engine.release_cache()

    @contextmanager
    def _deadline(self, requests: int) -> Iterator[None]:
        expired = GenerationTimeout(
            f"{self._name}: generating for {requests} prompts took longer than "
            f"{self._seconds:g} s; raise {self._name}.timeout_seconds, or ask for less at once "
            "(environment.parallel_episodes, max_tokens)"
        )
        # The exception arrives between two Python instructions, so not while a library hangs.
        with (
            _WATCHDOG.watching(self._seconds + GRACE_SECONDS),
            raising_after(self._seconds, expired, signal.ITIMER_REAL),
        ):
            yield


class _Watchdog:
    """Ends the process, with the traceback of all threads, when a watched call takes too long.

    A thread checks the time now and then, so that a call costs nothing. A timer of `faulthandler`
    starts and joins a thread for each call, which takes milliseconds where cores are busy. Unlike
    that timer, the thread waits for a call that never releases the interpreter's lock."""

    def __init__(self) -> None:
        self._ends: dict[object, float] = {}
        """Deadline of each call, on the monotonic clock."""
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, seconds: float) -> Iterator[None]:
        call = object()
        self._ends[call] = time.monotonic() + seconds
        if self._thread is None or not self._thread.is_alive():  # not in a forked process
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()
        try:
            yield
        finally:
            del self._ends[call]

    def _run(self) -> None:
        while all(end > time.monotonic() for end in [*self._ends.values()]):
            time.sleep(WATCHDOG_SECONDS)
        if sys.__stderr__ is not None:  # not sys.stderr, which is no file in a notebook
            faulthandler.dump_traceback(sys.__stderr__)
        os._exit(1)


_WATCHDOG = _Watchdog()
