"""Checks of a request's host and key before it is read."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

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
        # A web page whose name was pointed at this machine sends that name.
        if self._local and not all(map(is_loopback, _hosts(headers))):
            said = "this judge only serves this machine: address it as 127.0.0.1 or localhost"
            return JSONResponse({"detail": said}, 403)
        if self._wanted is None or (scope["method"] in ("GET", "HEAD") and scope["path"] in OPEN):
            return None
        given = headers.get("authorization", "").encode()
        if hmac.compare_digest(given, self._wanted):
            return None
        said = "this judge needs a key: send `Authorization: Bearer KEY`"
        return JSONResponse({"detail": said}, 401, {"WWW-Authenticate": "Bearer"})


def _hosts(headers: Headers) -> Iterable[str | None]:
    for given in headers.getlist("host"):
        try:
            yield urlsplit(f"//{given}").hostname
        except ValueError:
            yield None


def is_loopback(host: str | None) -> bool:
    """Whether a host's name or address is a loopback one."""
    if host is None or host == "localhost":
        return host is not None
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
