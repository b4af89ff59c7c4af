"""Stopping a run by SIGINT or SIGTERM, but never between a checkpoint and its entry in the store.

Imports nothing heavy: the command line needs it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """The run was asked to stop. Not an `Exception`, so that no handler mistakes it for a fault."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """130 for SIGINT, 143 for SIGTERM, as shells report them."""
        return 128 + self.number


class Stopper:
    """Turns the signals into `Stopped`."""

    def __init__(self) -> None:
        self._deferring = False
        self._pending: int | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, the signals raise `Stopped`. Only the main thread can listen; in another thread
        the program's own handlers stay."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A signal that arrives inside raises `Stopped` at the end, of the outermost of several."""
        before, self._deferring = self._deferring, True
        try:
            yield
        finally:
            self._deferring = before
        if not before:
            self.check()

    def check(self) -> None:
        """Raises `Stopped` if a signal has arrived, for example in a deferred section that ended
        by an error."""
        if self._pending is not None:
            raise Stopped(self._pending)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._pending = number
        if not self._deferring:
            raise Stopped(number)
