"""The requests of one episode's program, on their way to the environment and back.

The program's side is asyncio, in whatever loop its request is handled; the environment's is a
thread that waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from rlanything.domains.calls import Said
from rlanything.records import Completion
from rlanything_agent.reading import Asked, Denial

MOST_PENDING = 512
"""Largest number of answers that one program may wait for at the same time."""


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


@dataclass(frozen=True, slots=True)
class Sent:
    """Identity of a request as its client sent it: tells a repetition from a new request."""

    body: str
    """Hash of the body."""
    key: str = ""
    """The header `idempotency-key`."""
    retry: bool = False
    """Whether the client says that it has sent this before."""


@dataclass(eq=False, slots=True)
class Exchange:
    """A request, however often it is sent, and its answers."""

    left: list[Pending] = field(default_factory=list)
    """Its answers that are not there yet."""
    answers: dict[int, PolicyAnswer] = field(default_factory=dict)
    refusal: Denial | None = None
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    """One for each client connection that waits, in that connection's own loop."""
    heard: bool = False
    """Whether a client got the answers."""

    @property
    def abandoned(self) -> bool:
        """Whether no client waits, and none got the answers."""
        return not self.waiting and not self.heard

    def wake(self) -> None:
        """Lets the clients go on; from any thread."""
        for future in self.waiting:
            with contextlib.suppress(RuntimeError):  # the loop ended, and nobody waits
                future.get_loop().call_soon_threadsafe(_wake, future)


@dataclass(eq=False, slots=True)
class Pending:
    """One answer that a program waits for."""

    asked: Asked
    number: int
    """Its place among the answers to one request."""
    exchange: Exchange
    shown: bool = False
    """Whether the environment has it: it will be answered, also if nobody waits any more."""

    @property
    def id(self) -> str:
        return f"{self.asked.digest}-{self.number}"


class Conversation:
    """The requests of a program, first in, first out, until it or its episode ends.

    A request is one exchange, and its answers are sampled once, however often a client sends it. A
    request repeats an earlier one with the same body if it has the same `idempotency-key`, if the
    client says that it is a retry, or if nobody got the earlier one's answers: its client hung
    up."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: dict[Pending, None] = {}
        self._exchanges: dict[tuple[str, str], list[Exchange]] = {}
        """By key and body, those that may be asked for again."""
        self.unheard = False
        """Whether the program ended while an answer was due to it, or after it gave up on one."""
        self._ended: Ending | None = None
        self._closed = False

    @property
    def began(self) -> bool:
        """Whether anything was asked."""
        return bool(self._exchanges)

    async def ask(self, asked: Asked, sent: Sent) -> list[PolicyAnswer]:
        """Returns as many answers as are asked for. Raises `Denial`, also once the episode is
        over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        exchange = self._enter(asked, sent, waiter)
        try:
            await waiter
            exchange.heard = True
            if exchange.refusal is not None:
                raise exchange.refusal
            return [answer for _, answer in sorted(exchange.answers.items())]
        finally:
            self._leave(exchange, waiter, sent)

    def _enter(self, asked: Asked, sent: Sent, waiter: asyncio.Future[None]) -> Exchange:
        with self._changed:
            if self._closed or self._ended is not None:
                raise over()
            exchange = self._earlier(sent)
            if exchange is None:
                exchange = Exchange()
                exchange.left = [Pending(asked, i, exchange) for i in range(asked.answers)]
            if len(self._queue | dict.fromkeys(exchange.left)) > MOST_PENDING:
                raise Denial(
                    f"more than {MOST_PENDING} answers are waited for at the same time: wait for "
                    "some before you ask for more",
                    status=429,
                    code="rate_limit_exceeded",
                )
            same = self._exchanges.setdefault((sent.key, sent.body), [])
            if exchange not in same:
                same.append(exchange)
            self._queue |= dict.fromkeys(exchange.left)
            exchange.waiting.append(waiter)
            if not exchange.left:
                exchange.wake()
            self._changed.notify_all()
            return exchange

    def _earlier(self, sent: Sent) -> Exchange | None:
        """Returns the exchange that a request repeats; None for a new request."""
        same = self._exchanges.get((sent.key, sent.body), [])
        if sent.key and not same and any(key == sent.key for key, _ in self._exchanges):
            raise Denial(
                "this idempotency-key came with another body: use a new key",
                status=422,
                code="idempotency_key_reused",
            )
        abandoned = next((each for each in same if each.abandoned), None)
        if abandoned is None and same and (sent.key or sent.retry):
            return same[-1]
        return abandoned

    def _leave(self, exchange: Exchange, waiter: asyncio.Future[None], sent: Sent) -> None:
        with self._changed:
            exchange.waiting.remove(waiter)
            if exchange.waiting:
                return
            if not exchange.heard:  # what the environment has not seen yet is taken back
                self._take_back(exchange)
            seen = exchange.answers or any(member.shown for member in exchange.left)
            refused = exchange.heard and exchange.refusal is not None
            same = self._exchanges[sent.key, sent.body]
            if (refused or not seen) and exchange in same:
                same.remove(exchange)

    def _take_back(self, exchange: Exchange) -> None:
        for member in exchange.left:
            if not member.shown:
                self._queue.pop(member, None)

    def next(self, seconds: float, wanted: str | None = None) -> Pending | Ending | None:
        """Returns the oldest request (`wanted`: the one with this id), or the end; None where
        neither comes in time."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                if self._ended is not None:
                    return self._ended
                for pending in self._queue:
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
            exchange = pending.exchange
            self._queue.pop(pending, None)
            if pending in exchange.left:
                exchange.left.remove(pending)
            if isinstance(result, Denial):
                exchange.refusal = result
                self._take_back(exchange)
            else:
                exchange.answers[pending.number] = result
            if exchange.refusal is not None or not exchange.left:
                exchange.wake()

    def finish(self, ended: Ending) -> None:
        """Says how the program ended; only the first word counts."""
        with self._changed:
            if self._ended is None:
                self._ended = ended
                self.unheard = any(not each.heard for each in self._all())
            self._changed.notify_all()
            self._refuse_all()

    def close(self) -> None:
        """Refuses what waits and whatever may still come."""
        with self._changed:
            self._closed = True
            self._refuse_all()

    def _refuse_all(self) -> None:
        self._queue = {}
        for exchange in self._all():
            if exchange.left:
                exchange.refusal = exchange.refusal or over()
            exchange.wake()

    def _all(self) -> Iterator[Exchange]:
        return chain.from_iterable(self._exchanges.values())


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def over() -> Denial:
    """Returns the refusal of a request that comes too late."""
    return Denial(
        "this episode is over: its program has ended, or was ended", status=410, code="episode_over"
    )
