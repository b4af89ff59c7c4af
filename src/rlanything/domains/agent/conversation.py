"""The requests of one episode's program, on their way to the environment and back.

The program's side is asyncio, in whatever loop its request is handled; the environment's is a
thread that waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from rlanything.domains.agent.reading import Asked, Denial
from rlanything.domains.calls import Said
from rlanything.records import Completion


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """One answer of the policy, and what the program is told of it."""

    said: Said
    completion: Completion
    number: int
    """The number of its step."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a program."""

    value: Any = None
    """What it returned."""
    fault: BaseException | None = None
    """What it raised instead."""


@dataclass(eq=False, slots=True)
class Pending:
    """One answer that a program waits for."""

    asked: Asked
    id: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[PolicyAnswer]
    shown: bool = field(default=False)
    """Whether the environment has it: it will be answered, also if nobody waits any more."""

    def settle(self, result: PolicyAnswer | Denial) -> None:
        """Passes the answer on; from any thread."""

        def set_result() -> None:
            if self.future.done():
                return
            if isinstance(result, Denial):
                self.future.set_exception(result)
            else:
                self.future.set_result(result)

        with contextlib.suppress(RuntimeError):  # the loop ended, and nobody waits
            self.loop.call_soon_threadsafe(set_result)


class Conversation:
    """The requests of a program, first in, first out, until it or its episode ends."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: list[Pending] = []
        self._ended: Ending | None = None
        self._closed = False

    async def ask(self, asked: Asked) -> list[PolicyAnswer]:
        """Returns as many answers as are asked for. Raises `Denial`, also once the episode is
        over."""
        loop = asyncio.get_running_loop()
        pending = [
            Pending(asked, f"{asked.digest}-{i}", loop, loop.create_future())
            for i in range(asked.answers)
        ]
        self._enter(pending)
        try:
            return [await member.future for member in pending]
        finally:
            self._withdraw(pending)

    def _enter(self, pending: list[Pending]) -> None:
        with self._changed:
            if self._closed or self._ended is not None:
                raise over()
            self._pending += pending
            self._changed.notify_all()

    def _withdraw(self, pending: list[Pending]) -> None:
        with self._changed:
            for member in pending:
                member.future.cancel()
                if not member.shown and member in self._pending:
                    self._pending.remove(member)

    def next(self, seconds: float, wanted: str | None = None) -> Pending | Ending | None:
        """Returns the oldest request (`wanted`: the one with this id), or the end; None where
        neither comes in time."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                if self._ended is not None:
                    return self._ended
                for pending in self._pending:
                    if wanted in (None, pending.id):
                        pending.shown = True
                        return pending
                left = end - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)

    def settle(self, pending: Pending, result: PolicyAnswer | Denial) -> None:
        """Answers a request. One whose program has ended meanwhile was refused already."""
        with self._changed:
            if pending in self._pending:
                self._pending.remove(pending)
        pending.settle(result)

    def finish(self, ended: Ending) -> None:
        """Says how the program ended; only the first word counts."""
        with self._changed:
            self._ended = self._ended or ended
            self._changed.notify_all()
        self._refuse_all()

    def close(self) -> None:
        """Refuses what waits and whatever may still come."""
        with self._changed:
            self._closed = True
        self._refuse_all()

    def _refuse_all(self) -> None:
        with self._changed:
            left, self._pending = self._pending, []
        for pending in left:
            pending.settle(over())


def over() -> Denial:
    """Returns the refusal of a request that comes too late."""
    return Denial("this episode is over: its program has ended, or was ended", status=410)
