"""Streams that stay open while their answer is sampled, so that neither a client nor a proxy gives
up waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from rlanything_agent.asked import Asked, Denial
from rlanything_agent.dialects.base import Dialect

SECONDS = 10.0
"""Time without an answer after which a stream begins, and between its signs of life."""
OWN_HEADERS = "x-rlanything-"


class LateStream(StreamingResponse):
    """A reply that begins before its answer: signs of life, then the events of the answer. What its
    headers came too late for is in comments before the answer."""

    def __init__(
        self,
        answer: asyncio.Future[Response],
        dialect: Dialect,
        asked: Asked,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(self._content(dialect, asked), 200, headers, "text/event-stream")
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.cancel()  # if the client has disconnected, nobody waits for it

    async def _content(self, dialect: Dialect, asked: Asked) -> AsyncIterator[bytes]:
        while not self._answer.done():
            yield dialect.sign_of_life
            await asyncio.wait({self._answer}, timeout=SECONDS)
        try:
            response = await self._answer
        except Denial as refusal:
            yield dialect.failed(asked, refusal)
            return
        self.background = response.background
        for name, value in response.headers.items():
            if name.startswith(OWN_HEADERS):
                yield f": {name}: {value}\n\n".encode()
        yield bytes(response.body)


async def unless_gone(
    request: Request,
    answering: Awaitable[Response],
    late: Callable[[asyncio.Future[Response]], Response] | None = None,
) -> Response:
    """Returns the answer, or stops waiting for it if the client disconnects. `late`: makes the
    reply to a request whose answer takes longer than `SECONDS`; None: it just waits."""
    answer = asyncio.ensure_future(answering)
    gone = asyncio.ensure_future(_hung_up(request))
    waited = False
    try:
        seconds = None if late is None else SECONDS
        await asyncio.wait({answer, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return await answer
        if late is None or gone.done():
            return Response(status_code=499)
        waited = True
        return late(answer)
    finally:
        if not waited:
            answer.cancel()
        gone.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
