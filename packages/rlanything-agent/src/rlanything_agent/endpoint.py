"""The API in three dialects, and its endpoint for programs of this process: one key per episode."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import socket
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import httpx2
import openai
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from rlanything.strict_json import read_json
from rlanything_agent.asked import Asked, Denial
from rlanything_agent.conversation import Conversation, PolicyAnswer, Sent
from rlanything_agent.dialects.base import Dialect, model_list
from rlanything_agent.dialects.chat import ChatCompletions
from rlanything_agent.dialects.messages import AnthropicMessages
from rlanything_agent.dialects.responses import Responses
from rlanything_agent.helpers import Helpers
from rlanything_agent.late import OWN_HEADERS, LateStream, unless_gone

DIALECTS: tuple[type[Dialect], ...] = (ChatCompletions, AnthropicMessages, Responses)
MOST_BYTES = 8 * 2**20
"""Largest request body in bytes; every turn sends the whole conversation again."""
MOST_BYTES_WITH_IMAGES = 64 * 2**20
_QUICKLY_READ = 2**16
"""Largest body in bytes that is parsed in the event loop; a larger one would block other
episodes."""
_BACKLOG = 512
_LONG_TMPDIR = 64


class Asking(Protocol):
    """A policy as the server asks it."""

    async def ask(self, asked: Asked, sent: Sent) -> list[PolicyAnswer]: ...
    async def count(self, asked: Asked, sent: Sent) -> int: ...


@dataclass(frozen=True, slots=True)
class Door:
    """The access that a key grants."""

    key: str
    policy: Asking
    models: Sequence[str]
    """The names that the policy answers to."""
    helpers: Helpers
    images: bool
    """Whether the policy is shown images."""
    dialects: Sequence[Dialect] = field(default_factory=lambda: [kind() for kind in DIALECTS])
    """One of each kind; Responses keeps those of the episode."""
    any_name: bool = False
    """Whether the policy answers to all other names too."""

    @property
    def most_bytes(self) -> int:
        """Largest request in bytes."""
        return MOST_BYTES_WITH_IMAGES if self.images else MOST_BYTES


class Api(ABC):
    """The three dialects as an application; a subclass decides who may ask which policy."""

    def __init__(
        self,
        prefixes: Sequence[str] = ("",),
        others: Sequence[BaseRoute] = (),
        retried: bool = False,
    ) -> None:
        """`prefixes`: of the API's paths. `others`: further routes. `retried`: whether clients may
        repeat a request after a refusal that may pass."""
        routes = [*others]
        for prefix in prefixes:
            routes.append(Route(f"{prefix}/v1/models", self._models, methods=["GET"]))
            for number, kind in enumerate(DIALECTS):
                answer = partial(self._answer, number=number)
                routes.append(Route(f"{prefix}{kind.path}", answer, methods=["POST"]))
                if kind.counting_path is not None:
                    count = partial(self._answer, number=number, count_only=True)
                    path = f"{prefix}{kind.counting_path}"
                    routes.append(Route(path, count, methods=["POST"]))
        handlers: dict[Any, Callable[..., Awaitable[Response]]] = {
            Denial: partial(_refused, retried=retried),
            HTTPException: _no_such_place,
        }
        self.app = Starlette(routes=routes, exception_handlers=handlers)

    @abstractmethod
    def _door(self, request: Request) -> Door:
        """Returns what a request has access to. Raises `Denial`."""

    async def _models(self, request: Request) -> Response:
        door = self._door(request)
        return json_reply(model_list([*door.models, *door.helpers.names]))

    async def _answer(self, request: Request, number: int, count_only: bool = False) -> Response:
        """Returns the reply in the dialect of this number."""
        door = self._door(request)
        dialect = door.dialects[number]
        data = await body_of(request, door.most_bytes)
        read = partial(_read, data, door, dialect, count_only)
        asked = await asyncio.to_thread(read) if len(data) > _QUICKLY_READ else read()
        if not isinstance(asked, Asked):
            path = request.url.path.removeprefix("/v1")
            helping = door.helpers.answer(asked["model"], path, asked, door.models)
            return await unless_gone(request, helping)
        headers = request.headers
        body = hashlib.sha256(f"{request.url.path}\n".encode())
        body.update(data)
        sent = Sent(
            body.hexdigest(),
            headers.get("idempotency-key", ""),
            headers.get("x-stainless-retry-count", "0") != "0",
        )
        replying = self._replied(request, door, dialect, asked, sent)
        late = None
        if asked.stream:
            known = _ignored(dialect.ignored(asked, (), headers.keys()))
            late = partial(LateStream, dialect=dialect, asked=asked, headers=known)
        return await unless_gone(request, replying, late)

    async def _replied(
        self, request: Request, door: Door, dialect: Dialect, asked: Asked, sent: Sent
    ) -> Response:
        """Returns the reply to a request to the policy. Raises `Denial`."""
        names = request.headers.keys()
        if asked.count_only:
            body = dialect.count(await door.policy.count(asked, sent))
            return json_reply(body, headers=_ignored(dialect.ignored(asked, (), names)))
        answers = await door.policy.ask(asked, sent)
        ignored = _ignored(dialect.ignored(asked, answers, names))
        if asked.stream:
            content = dialect.events(asked, answers)
            return Response(content, media_type="text/event-stream", headers=ignored)
        return json_reply(dialect.reply(asked, answers), headers=ignored)


class AgentEndpoint(Api):
    """A server on 127.0.0.1 and on a unix socket, started on first use. Programs of this process
    reach it without either."""

    def __init__(self) -> None:
        super().__init__()
        self._doors: dict[str, tuple[Conversation, Door]] = {}
        self._lock = threading.Lock()
        self._url: str | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        # One shared client: creating one can take longer than an answer.
        self._client = openai.AsyncOpenAI(
            api_key="none",
            base_url="http://agent.invalid/v1",
            timeout=None,
            max_retries=0,
            http_client=httpx2.AsyncClient(
                transport=httpx2.ASGITransport(self.app), timeout=None, trust_env=False
            ),
        )

    def open(
        self,
        conversation: Conversation,
        models: Sequence[str],
        helpers: Helpers,
        images: bool,
    ) -> Door:
        """Opens access for a program until `shut` is called, and returns it."""
        door = Door(f"sk-{secrets.token_hex(16)}", conversation, models, helpers, images)
        self._doors[door.key] = conversation, door
        return door

    def shut(self, door: Door) -> None:
        """Ends a program's access; its further requests are refused."""
        if opened := self._doors.pop(door.key, None):
            conversation, _ = opened
            conversation.close()

    def client(self, door: Door) -> openai.AsyncOpenAI:
        """Returns a client for a coroutine of this process. It needs no network. Its `base_url` is
        still the server's, so that other clients can be made from it."""
        return self._client.with_options(api_key=door.key, base_url=self.url)

    @property
    def url(self) -> str:
        """Base URL of the API."""
        with self._lock:
            if self._url is None:
                self._url = self._serve()
            return self._url

    @property
    def socket_path(self) -> Path:
        """Unix socket that the same server listens on."""
        _ = self.url
        assert self._folder is not None
        return Path(self._folder.name, "endpoint")

    def _serve(self) -> str:
        # A socket's path has at most 107 bytes, and that of TMPDIR may be long.
        near = "/tmp" if len(os.fsencode(tempfile.gettempdir())) > _LONG_TMPDIR else None
        self._folder = tempfile.TemporaryDirectory(
            prefix="rlanything-agent-", dir=near, ignore_cleanup_errors=True
        )
        place = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        local = socket.socket(socket.AF_UNIX)
        path = Path(self._folder.name, "endpoint")
        local.bind(str(path))
        local.listen(_BACKLOG)
        path.chmod(0o666)  # a box runs as another user; the key decides what it may request
        config = uvicorn.Config(
            self.app, lifespan="off", log_level="error", access_log=False, backlog=_BACKLOG
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=server.run, args=([place, local],), name="agent-endpoint", daemon=True
        )
        thread.start()
        return f"http://127.0.0.1:{place.getsockname()[1]}/v1"

    def _door(self, request: Request) -> Door:
        _, _, key = request.headers.get("authorization", "").partition(" ")
        opened = self._doors.get(key) or self._doors.get(request.headers.get("x-api-key", ""))
        if opened is None:
            raise Denial(
                "unknown key: use the one in OPENAI_API_KEY or ANTHROPIC_API_KEY (or the "
                "client's), while its episode lasts",
                status=401,
                code="invalid_api_key",
            )
        return opened[1]


@cache
def endpoint() -> AgentEndpoint:
    """Returns the endpoint of this process."""
    return AgentEndpoint()


def _ignored(said: str) -> dict[str, str]:
    return {f"{OWN_HEADERS}ignored": said} if said else {}


def json_reply(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    # In ASCII: requests may contain halves of characters, which UTF-8 cannot encode.
    return Response(json.dumps(body), status, headers, media_type="application/json")


async def body_of(request: Request, most: int) -> bytes:
    """Returns the body of a request. Raises `Denial` for one of more than `most` bytes."""
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > most:
                raise _too_large("the body", most)
    except ClientDisconnect:
        raise Denial("the client has gone before the end of its body") from None
    return bytes(data)


def _too_large(what: str, most: int) -> Denial:
    return Denial(
        f"{what} has more than {most:,} bytes: send less", status=413, code="request_too_large"
    )


def _read(data: bytes, door: Door, dialect: Dialect, count_only: bool) -> Asked | dict[str, Any]:
    """Returns the request to the policy, or the body of a request to another model."""
    try:
        body = read_json(data)
    except (ValueError, RecursionError):
        raise Denial("the body is no JSON: send an object", code="invalid_json") from None
    name = body.get("model") if isinstance(body, dict) else None
    if isinstance(name, str) and name not in door.models and not door.any_name:
        return body
    asked = dialect.read(body, door.images, count_only)
    if asked.size > door.most_bytes:  # with the responses that it continues
        raise _too_large("the conversation", door.most_bytes)
    return asked


async def _refused(request: Request, refusal: Denial, retried: bool) -> Response:
    # The clients would retry after these statuses; an episode has no time for that.
    again = not retried and (refusal.status >= 500 or refusal.status == 429)
    headers = {"x-should-retry": "false"} if again else {}
    return json_reply(_spoken(request).error(refusal), refusal.status, headers)


def _spoken(request: Request) -> type[Dialect]:
    """Returns the dialect of a path, for errors."""
    path = request.url.path
    return next((kind for kind in DIALECTS if kind.path in path), ChatCompletions)


async def _no_such_place(request: Request, fault: HTTPException) -> Response:
    known = "POST /v1/chat/completions, /v1/messages and /v1/responses, and GET /v1/models, are "
    known += "all there is"
    refusal = Denial(
        f"{request.method} {request.url.path}: {fault.detail}; {known}",
        status=fault.status_code,
        code="unknown_url",
    )
    return json_reply(_spoken(request).error(refusal), refusal.status)
