"""Time limits for Python code: by a signal in the main thread, by an exception from a watcher
thread elsewhere. Both arrive between two Python instructions."""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = {signal.ITIMER_REAL: signal.SIGALRM, signal.ITIMER_VIRTUAL: signal.SIGVTALRM}
CLOCKS = {signal.ITIMER_REAL: time.monotonic, signal.ITIMER_VIRTUAL: time.process_time}
_POLL_SECONDS = 0.05
"""Interval at which the watcher checks the clocks of other threads."""


@contextmanager
def raising_after(seconds: float, error: BaseException, timer: int) -> Iterator[None]:
    """Raises `error` inside the context after this many seconds of a timer: `signal.ITIMER_REAL`,
    or `signal.ITIMER_VIRTUAL` for CPU time.

    In the main thread, an alarm that the caller had set continues afterwards."""
    if threading.current_thread() is not threading.main_thread():  # it alone receives signals
        with _WATCH.watching(seconds, error, timer):
            yield
        return

    def expired(number: int, frame: FrameType | None) -> None:
        raise error

    number, clock = SIGNALS[timer], CLOCKS[timer]
    begun = clock()
    before = signal.signal(number, expired)
    left, interval = signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)
        if left:
            signal.setitimer(timer, max(left - (clock() - begun), 1e-3), interval)


class _Expired(BaseException):
    """The exception sent to a thread, which can only be a class."""


@dataclass(eq=False, slots=True)
class _Watched:
    """A section of a thread's work that has a time limit."""

    thread: int
    clock: int
    end: float
    """Deadline on this clock."""
    sent: bool = False
    """Whether the exception was sent to its thread."""


class _Watch:
    """A thread that checks the clocks of others, as long as there is something to watch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: set[_Watched] = set()
        self._running = False

    @contextmanager
    def watching(self, seconds: float, error: BaseException, timer: int) -> Iterator[None]:
        thread = threading.get_ident()
        clock = time.CLOCK_MONOTONIC
        if timer == signal.ITIMER_VIRTUAL:
            clock = time.pthread_getcpuclockid(thread)
        watched = _Watched(thread, clock, time.clock_gettime(clock) + seconds)
        with self._lock:
            self._watched.add(watched)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="watch", daemon=True).start()
        try:
            try:
                yield
            finally:
                self._leave(watched)
        except _Expired:
            self._leave(watched)  # in case the exception interrupted the line above
            if not watched.sent:  # it belongs to an outer context
                raise
            raise error from None

    def _leave(self, watched: _Watched) -> None:
        with self._lock:
            self._watched.discard(watched)
        if watched.sent:  # perhaps not raised yet, and must not be raised later
            _send(watched.thread, None)

    def _run(self) -> None:
        while True:
            time.sleep(_POLL_SECONDS)
            with self._lock:
                for watched in self._watched:
                    if not watched.sent and time.clock_gettime(watched.clock) >= watched.end:
                        watched.sent = True
                        _send(watched.thread, _Expired)
                self._running = bool(self._watched)
                if not self._running:
                    return


def _send(thread: int, kind: type[BaseException] | None) -> None:
    """Makes a thread raise an exception at its next instruction; None: cancels a pending one."""
    given = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)


_WATCH = _Watch()
