"""Early ends of a run: SIGINT and SIGTERM, though never between a checkpoint and its entry in the
store, and iterations in which no episode could be played."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from types import FrameType

from rlanything.loop import IterationResult
from rlanything.rollout.episodes import faults
from rlanything.runs.metrics.measuring import read
from rlanything.runs.results import Numbers
from rlanything.runs.stopped import Stopped

__all__ = ["NothingPlayed", "Plays", "Stopped", "Stopper"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)
MAX_UNPLAYED = 3
"""So many iterations in a row without an episode stop a run: it would go on to its end like that,
and nobody would know."""


class NothingPlayed(ValueError):
    """No episode could be played for a while; the message is one line."""


class Plays:
    """A watch over a run: iterations without an episode end it."""

    def __init__(self, history: Mapping[int, Numbers], total: int) -> None:
        """`history`: the metrics of the iterations that are kept; `total`: how many there are to
        be."""
        episodes = [read(history[t], "rollouts/episodes") for t in sorted(history) if t]
        self._patience = min(total, MAX_UNPLAYED)
        self._unplayed = sum(1 for _ in takewhile(lambda played: not played, reversed(episodes)))

    def watch(self, result: IterationResult) -> None:
        """Raises `NothingPlayed` if the latest iterations had no episode, this one the last: it is
        not kept, so that a run that is resumed repeats it."""
        self._unplayed = 0 if result.groups else self._unplayed + 1
        if self._unplayed < self._patience:
            return
        why = faults(result.failures, ())
        if not why:
            raise NothingPlayed("no task is left that can be played: begin a run on other tasks")
        lasted = (
            "this iteration" if self._patience == 1 else f"{self._patience} iterations in a row"
        )
        raise NothingPlayed(f"nothing was played in {lasted}: {why[0]}; see to that first")


class Stopper:
    """Turns the signals into `Stopped`."""

    def __init__(self) -> None:
        self._deferring = False
        self._pending: int | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, the signals raise `Stopped`. Only the main thread can listen; in another the
        signals stay the program's."""
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
        """A signal inside is heeded at the end."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False
        if self._pending is not None:
            raise Stopped(self._pending)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._pending = number
        if not self._deferring:
            raise Stopped(number)
