"""Sends for the official client: takes no more than it should, and goes nowhere else."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import openai

from rlanything.replies import BadReply

# They log every header of a reply, in which the key may be.
for name in ("httpx2", "httpcore2"):
    logging.getLogger(name).setLevel(logging.WARNING)


class Refused(Exception):
    """A reply of another status than success."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """Takes no reply of more than `most` bytes, unpacks none, and follows no redirect, which would
    carry the prompt to another place. Of headers it gives the official client none to log."""

    def __init__(self, most: int) -> None:
        super().__init__(follow_redirects=False, headers={"Accept-Encoding": "identity"})
        self._most = most

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Raises `Refused`, and `BadReply` for one that is too long."""
        del stream
        response = await super().send(request, stream=True, **options)
        body = bytearray()
        try:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > self._most:
                    break
        finally:
            await response.aclose()
        if not response.is_success:
            raise Refused(response.status_code, response.headers, bytes(body))
        if len(body) > self._most:
            raise BadReply(f"sent more than {self._most} bytes")
        return type(response)(response.status_code, content=bytes(body), request=request)
