"""The requests of one episode's program, on their way to the environment and back.

The program's side is asyncio, in whichever loop handles the request. The environment's side is a
thread that waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol, TypeVar

from rlanything.domains.calls import Said
from rlanything.records import Completion
from rlanything_agent.asked import Asked, Denial

MOST_PENDING = 512
"""Largest number of answers that one program may await at the same time."""


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """One answer of the policy, as the program receives it."""

    said: Said
    completion: Completion
    number: int
    """Number of the step that it answers."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a program."""

    value: Any = None
    """Return value of the program."""
    fault: BaseException | None = None
    """Exception that the program raised instead of returning."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Identity of a request as its client sent it; distinguishes a retry from a new request."""

    body: str
    """Hash of the body."""
    key: str = ""
    """The header `idempotency-key`."""
    retry: bool = False
    """Whether the client marks this as a retry."""


class Repeatable(Protocol):
    """A request that may be sent again."""

    @property
    def abandoned(self) -> bool: ...


RepeatableT = TypeVar("RepeatableT", bound=Repeatable)


def repeated(sent: Sent, same: Sequence[RepeatableT]) -> RepeatableT | None:
    """Returns the request that another one repeats, or None if that one is new. `same`: earlier
    requests with its body and its key."""
    abandoned = next((each for each in same if each.abandoned), None)
    if abandoned is None and same and (sent.key or sent.retry):
        return same[-1]
    return abandoned


@dataclass(eq=False, slots=True)
class Exchange:
    """A request with its answers. The same request may be sent several times."""

    left: list[Pending] = field(default_factory=list)
    """Its answers that are still pending."""
    answers: dict[int, PolicyAnswer] = field(default_factory=dict)
    tokens: int = 0
    """Number of its prompt's tokens, if only they were asked for."""
    refusal: Denial | None = None
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    """One future per waiting client connection, each in that connection's own loop."""
    heard: bool = False
    """Whether a client received the answers."""

    @property
    def abandoned(self) -> bool:
        """Whether no client is waiting and none received the answers."""
        return not self.waiting and not self.heard

    def wake(self) -> None:
        """Wakes the waiting clients; callable from any thread."""
        for future in self.waiting:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                future.get_loop().call_soon_threadsafe(_wake, future)


@dataclass(eq=False, slots=True)
class Pending:
    """One answer that a program is waiting for."""

    asked: Asked
    number: int
    """Its index among the answers to one request."""
    exchange: Exchange
    shown: bool = False
    """Whether the environment has it; if so, it is answered even if the client has disconnected."""

    @property
    def id(self) -> str:
        return f"{self.asked.digest}-{self.number}"


class Conversation:
    """The requests of a program, first in, first out, until it or its episode ends.

    Each request is one exchange. Its answers are sampled once, even if the client sends it several
    times. A request repeats an earlier one with the same body in three cases: it has the same
    `idempotency-key`, the client marks it as a retry, or the earlier client disconnected before it
    got the answers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: dict[Pending, None] = {}
        self._exchanges: dict[tuple[str, str], list[Exchange]] = {}
        """Requests that may be sent again, by key and body."""
        self.unheard = False
        """Whether the program ended while an answer was pending, or after it gave up on one."""
        self._ended: Ending | None = None
        self._closed = False

    @property
    def began(self) -> bool:
        """Whether any request has been made."""
        return bool(self._exchanges)

    async def ask(self, asked: Asked, sent: Sent) -> list[PolicyAnswer]:
        """Returns the requested number of answers. Raises `Denial`, also after the end of the
        episode."""
        exchange = await self._exchanged(asked, sent)
        return [answer for _, answer in sorted(exchange.answers.items())]

    async def count(self, asked: Asked, sent: Sent) -> int:
        """Returns the number of a prompt's tokens. Raises `Denial`, as `ask` does."""
        return (await self._exchanged(asked, sent)).tokens

    async def _exchanged(self, asked: Asked, sent: Sent) -> Exchange:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        exchange = self._enter(asked, sent, waiter)
        try:
            await waiter
            exchange.heard = True
            if exchange.refusal is not None:
                raise exchange.refusal
            return exchange
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
        """Returns the exchange that a request repeats, or None if the request is new."""
        same = self._exchanges.get((sent.key, sent.body), [])
        if sent.key and not same and any(key == sent.key for key, _ in self._exchanges):
            raise Denial(
                "this idempotency-key came with another body: use a new key",
                status=422,
                code="idempotency_key_reused",
            )
        return repeated(sent, same)

    def _leave(self, exchange: Exchange, waiter: asyncio.Future[None], sent: Sent) -> None:
        with self._changed:
            exchange.waiting.remove(waiter)
            if exchange.waiting:
                return
            if not exchange.heard:  # withdraw what the environment has not seen yet
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
        """Returns the oldest request (`wanted`: the one with this id), or the end; None if neither
        comes in time."""
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

    def settle(self, pending: Pending, result: PolicyAnswer | Denial | int) -> None:
        """Answers a request; `int`: the number of its prompt's tokens. If its program has ended,
        the request was refused already."""
        with self._changed:
            exchange = pending.exchange
            self._queue.pop(pending, None)
            if pending in exchange.left:
                exchange.left.remove(pending)
            if isinstance(result, Denial):
                exchange.refusal = result
                self._take_back(exchange)
            elif isinstance(result, int):
                exchange.tokens = result
            else:
                exchange.answers[pending.number] = result
            if exchange.refusal is not None or not exchange.left:
                exchange.wake()

    def finish(self, ended: Ending) -> None:
        """Records how the program ended; only the first call counts."""
        with self._changed:
            if self._ended is None:
                self._ended = ended
                self.unheard = any(not each.heard for each in self._all())
            self._changed.notify_all()
            self._refuse_all()

    def close(self) -> None:
        """Refuses all pending and future requests."""
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
    """Returns the refusal of a request that comes after the end of the episode."""
    return Denial(
        "this episode is over: its program has ended, or was ended", status=410, code="episode_over"
    )
