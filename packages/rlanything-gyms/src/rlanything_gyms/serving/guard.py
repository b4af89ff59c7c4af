"""Checks of a request's host and key before any of it is read."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from rlanything.serving.address import LOCAL_ONLY, is_local


class DomainGuard:
    """Rejects requests without the key, and those of web pages: they could otherwise reach a server
    that only serves this machine."""

    def __init__(self, app: ASGIApp, key: str | None, local: bool) -> None:
        """`key`: the key that clients must send (None: none needed); `local`: whether requests must
        name a loopback address."""
        self._app, self._key, self._local = app, key, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None if scope["type"] == "lifespan" else self._refusal(Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": refusal[1]})
        else:
            await JSONResponse({"detail": refusal[1]}, refusal[0])(scope, receive, send)

    def _refusal(self, headers: Headers) -> tuple[int, str] | None:
        """Returns status and reason; None: the request may pass."""
        if self._local and not is_local(headers.getlist("host"), headers.getlist("origin")):
            return 403, f"this server {LOCAL_ONLY}"
        if self._key is None:
            return None
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(given.encode(), self._key.encode()):
            return None
        return 401, "this server needs a key: send it as `X-API-Key` or `Authorization: Bearer KEY`"
