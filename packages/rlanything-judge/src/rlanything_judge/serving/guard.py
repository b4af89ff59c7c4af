"""Checks of a request's host and key before it is read."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from rlanything.serving.address import LOCAL_ONLY, is_local

OPEN = ("/", "/docs", "/health", "/openapi.json")
"""Paths that need no key: they only describe the service."""


class Guard:
    """Rejects requests before any of their body is read."""

    def __init__(self, app: ASGIApp, key: str | None, local: bool) -> None:
        """`key`: key that callers must send (None: none needed); `local`: only accept requests that
        address this machine by a loopback name."""
        self._app = app
        self._local = local
        self._wanted = None if key is None else f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refused is None else refused)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if self._local and not is_local(headers.getlist("host"), headers.getlist("origin")):
            return JSONResponse({"detail": f"this judge {LOCAL_ONLY}"}, 403)
        if self._wanted is None or (scope["method"] in ("GET", "HEAD") and scope["path"] in OPEN):
            return None
        given = headers.get("authorization", "").encode()
        if hmac.compare_digest(given, self._wanted):
            return None
        said = "this judge needs a key: send `Authorization: Bearer KEY`"
        return JSONResponse({"detail": said}, 401, {"WWW-Authenticate": "Bearer"})
