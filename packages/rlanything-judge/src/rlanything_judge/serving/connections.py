"""Limits on a server's connections: their number, and the time for a request to arrive."""

from __future__ import annotations

import asyncio
import resource
import time

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
"""Time limit from the start of a request, or a connection, to the end of its headers."""
MOST_CONNECTIONS = 4096


def most_connections() -> int:
    """Returns the limit of open connections: part of the files that this process may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files < 0 else min(MOST_CONNECTIONS, files * 3 // 4)


class LimitedConnection(H11Protocol):
    """A connection that is closed if the headers of a request take too long.

    Beyond `most_connections`, the connection that has waited longest for headers makes room for a
    new one; a request that is being answered is never dropped."""

    _due: asyncio.TimerHandle | None = None
    since = 0.0
    """Time at which it began to wait for headers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_headers()
        if len(self.connections) > most_connections():
            waiting = [
                other
                for other in self.connections
                if isinstance(other, LimitedConnection) and other.waits_for_headers
            ]
            min(waiting, key=lambda other: other.since).end()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.waits_for_headers:
            self._stop_waiting()
        elif self._due is None:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def end(self) -> None:
        """Closes the connection immediately."""
        self.connections.discard(self)
        self.transport.abort()

    @property
    def waits_for_headers(self) -> bool:
        """Whether none of its requests is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _await_headers(self) -> None:
        self.since = time.monotonic()
        self._due = self.loop.call_later(HEADER_SECONDS, self.end)

    def _stop_waiting(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
