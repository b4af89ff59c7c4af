"""Calls to seats, and the collection of their answers: progress, results, failures, deaths."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from rlanything.cluster.base import Call, SeatLost, Seats
from rlanything.cluster.seat import Done, Failed, SamplesDone, StageBegun
from rlanything.config.engines import OnStage, unseen


class SeatPool(Seats):
    """Base class of seats; a launcher says how messages reach them."""

    usable = True
    grace_seconds = 5.0
    """Grace period for other seats to finish a call that failed on one of them."""
    on_stage: OnStage = staticmethod(unseen)
    """Called with the stages of the first seat; the others go through the same."""

    def ask(
        self,
        calls: Mapping[int, Call],
        seconds: float,
        on_progress: Callable[[int], None] | None = None,
    ) -> dict[int, Any]:
        if not self.usable:
            raise SeatLost("the seats have ended")
        apart = all(call.apart for call in calls.values())
        try:
            with self._translating_losses():
                self._post(calls, seconds)
                results, failures = self._gather(set(calls), seconds, on_progress, apart)
        except SeatLost:
            self.close()
            raise
        except BaseException:
            # A late answer would be mistaken for the next call's. They may be writing a checkpoint.
            self.usable = False
            raise
        if failures:
            raise failures[min(failures)]
        return results

    def _translating_losses(self) -> AbstractContextManager[None]:
        """Turns a launcher's own errors into `SeatLost`."""
        return nullcontext()

    @abstractmethod
    def _post(self, messages: Mapping[int, Any], seconds: float) -> None:
        """Sends messages, by seat; a dead seat is detected later."""

    @abstractmethod
    def _wait(self, waiting: Collection[int], seconds: float) -> list[int]:
        """Returns the seats that have sent a message; empty: all were silent for this long."""

    @abstractmethod
    def _receive(self, number: int, seconds: float) -> SamplesDone | StageBegun | Done | Failed:
        """Returns a seat's next message. Raises `SeatLost`, after which no seat is left."""

    def _gather(
        self,
        waiting: set[int],
        seconds: float,
        on_progress: Callable[[int], None] | None = None,
        apart: bool = False,
    ) -> tuple[dict[int, Any], dict[int, Exception]]:
        """Returns the results and the failures of the waiting seats, by seat."""
        results: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        starting: dict[int, float] = {}
        """Longest silence of the seats that are in a stage of starting, by seat."""
        limit = seconds
        deadline = time.monotonic() + limit
        while waiting:
            ready = self._wait(waiting, max(deadline - time.monotonic(), 0.0))
            if not ready:
                if failures:  # the others wait for the failed ones, and would wait forever
                    break
                late = ", ".join(map(str, sorted(waiting)))
                self._lose(f"no message from seat {late} for {limit:g} s")
            for number in ready:
                message = self._receive(number, seconds)
                starting.pop(number, None)
                if isinstance(message, SamplesDone):
                    if on_progress is not None:
                        on_progress(message.samples)
                elif isinstance(message, StageBegun):
                    starting[number] = message.seconds
                    if number == 0:
                        self.on_stage(message.text, message.seconds)
                elif isinstance(message, Done):
                    results[number] = message.result
                else:
                    failures[number] = message.error
                if isinstance(message, Done | Failed):
                    waiting.discard(number)
                patience = seconds if apart or not failures else min(self.grace_seconds, seconds)
                limit = max(patience, *starting.values(), 0.0)
                deadline = time.monotonic() + limit
        if waiting:
            self.close()
        return results, failures

    def _lose(self, why: str) -> NoReturn:
        self.close()
        raise SeatLost(why)
