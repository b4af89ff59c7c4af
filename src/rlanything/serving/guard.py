"""The conditions under which a request is read at all: its host, and its key."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN = ("/", "/docs", "/health", "/openapi.json")
"""Paths that need no key: they describe the service and take nothing."""


class Guard:
    """Refuses requests before any of their body is read."""

    def __init__(self, app: ASGIApp, key: str | None, local: bool) -> None:
        """`key`: the one that callers must send, None: any may ask; `local`: whether callers of
        this machine are meant, who name it by a loopback address."""
        self._app, self._local = app, local
        self._wanted = None if key is None else f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refused is None else refused)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        # A web page whose name was pointed at this machine sends that name.
        if self._local and not all(map(is_loopback, _hosts(headers))):
            said = "this judge listens on this machine alone: ask it as 127.0.0.1 or localhost"
            return JSONResponse({"detail": said}, 403)
        if self._wanted is None or (scope["method"] in ("GET", "HEAD") and scope["path"] in OPEN):
            return None
        given = headers.get("authorization", "").encode()
        if hmac.compare_digest(given, self._wanted):
            return None
        said = "this judge wants a key: send `Authorization: Bearer KEY`"
        return JSONResponse({"detail": said}, 401, {"WWW-Authenticate": "Bearer"})


def _hosts(headers: Headers) -> Iterable[str | None]:
    for given in headers.getlist("host"):
        try:
            yield urlsplit(f"//{given}").hostname
        except ValueError:
            yield None


def is_loopback(host: str | None) -> bool:
    """Whether a host's name or address is that of this machine alone."""
    if host is None or host == "localhost":
        return host is not None
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
