"""Gathers what seats answer: progress, results, failures, silence and deaths."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

from rlanything.cluster.base import Call, SeatLost
from rlanything.cluster.seat import Done, Failed, SamplesDone


class Answers(ABC):
    """The driver's end of all seats, wherever these are."""

    grace_seconds = 5.0
    """What seats are given to end a call that failed on another: they may wait for it in vain."""

    def ask(
        self,
        calls: Mapping[int, Call],
        seconds: float,
        on_progress: Callable[[int], None] | None = None,
    ) -> dict[int, Any]:
        """Makes calls, by seat; see `Seats.ask`."""
        if not self.alive:
            raise SeatLost("the seats have ended")
        apart = all(call.apart for call in calls.values())
        try:
            self._post(calls, seconds)
            results, failures = self._gather(set(calls), seconds, on_progress, apart)
        except BaseException:
            # An answer that is on its way would be taken for that to the next call.
            self.close()
            raise
        if failures:
            raise failures[min(failures)]
        return results

    @abstractmethod
    def close(self) -> None:
        """Ends all seats."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """See `Seats.alive`."""

    @abstractmethod
    def _post(self, messages: Mapping[int, Any], seconds: float) -> None:
        """Has seats begin what they are asked for; one that is dead is found out later."""

    @abstractmethod
    def _wait(self, waiting: Collection[int], seconds: float) -> list[int]:
        """Returns the seats that have said something; none: all were silent for so long."""

    @abstractmethod
    def _receive(self, number: int, seconds: float) -> SamplesDone | Done | Failed:
        """Returns a seat's next message. Raises `SeatLost`, after which no seat is left."""

    def _gather(
        self,
        waiting: set[int],
        seconds: float,
        on_progress: Callable[[int], None] | None = None,
        apart: bool = False,
    ) -> tuple[dict[int, Any], dict[int, Exception]]:
        """Returns what the seats that are at work say in the end: results, and failures."""
        results: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        deadline = time.monotonic() + seconds
        while waiting:
            ready = self._wait(waiting, max(deadline - time.monotonic(), 0.0))
            if not ready:
                if failures:  # the others wait for those that failed, and would for ever
                    break
                late = ", ".join(map(str, sorted(waiting)))
                self._lose(f"nothing was heard of seat {late} for {seconds:g} s")
            for number in ready:
                message = self._receive(number, seconds)
                if isinstance(message, SamplesDone):
                    if on_progress is not None:
                        on_progress(message.samples)
                elif isinstance(message, Done):
                    results[number] = message.result
                else:
                    failures[number] = message.error
                if not isinstance(message, SamplesDone):
                    waiting.discard(number)
                patience = seconds if apart or not failures else min(self.grace_seconds, seconds)
                deadline = time.monotonic() + patience
        if waiting:
            self.close()
        return results, failures

    def _lose(self, why: str) -> NoReturn:
        self.close()
        raise SeatLost(why)
