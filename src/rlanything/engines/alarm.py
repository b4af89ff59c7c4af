"""An end to what takes too long, by a signal. Signals arrive in the main thread alone: elsewhere
nothing is limited."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = {signal.ITIMER_REAL: signal.SIGALRM, signal.ITIMER_VIRTUAL: signal.SIGVTALRM}
CLOCKS = {signal.ITIMER_REAL: time.monotonic, signal.ITIMER_VIRTUAL: time.process_time}


def in_main_thread() -> bool:
    """Whether anything can be limited here."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def raising_after(seconds: float, error: BaseException, timer: int) -> Iterator[None]:
    """Raises `error` inside the context once so many seconds of a timer have passed there:
    `signal.ITIMER_REAL`, or `signal.ITIMER_VIRTUAL` for those of this process's CPU.

    An alarm of whoever calls goes on afterwards."""
    if not in_main_thread():
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
