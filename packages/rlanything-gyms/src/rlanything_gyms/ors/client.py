"""A client of ORS servers (openrewardstandard.io)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter, ValidationError

from rlanything_gyms.http_tools import HttpFault, HttpServer, RefusedRequest

T = TypeVar("T")
_RESUMED = 3
"""Retries of a call whose connection breaks after it began."""
_PAUSE_SECONDS = 0.5
PING_SECONDS = 10.0
"""Time between pings of a session, as in the standard's own client."""
PINGING = "ors-ping"
"""Name of the threads that ping."""
_MOST_PINGS = 360
"""Pings after the last call, of an hour: an episode that `loop.max_steps` cuts off keeps its
session until the next one begins."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Block(_Part):
    type: str
    text: str = ""

    def __str__(self) -> str:
        return self.text if self.type == "text" else f"[{self.type}: not shown]"


class Called(_Part):
    """The result of a call."""

    blocks: list[_Block]
    reward: float | None = None
    """None: the server gives none for this call."""
    finished: bool = False

    @property
    def text(self) -> str:
        return "\n".join(map(str, self.blocks))


class _Success(_Part):
    ok: Literal[True]
    output: Called


class _Failure(_Part):
    ok: Literal[False]
    error: str


class _Result(RootModel[Annotated[_Success | _Failure, Field(discriminator="ok")]]):
    pass


class ToolSpec(_Part):
    """A tool that a server offers."""

    name: Annotated[str, Field(min_length=1)]
    description: str = ""
    input_schema: dict[str, Any] | None = None


class _Tools(_Part):
    tools: Annotated[list[ToolSpec], Field(min_length=1)]


class _Count(_Part):
    num_tasks: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class OrsPlace:
    """One environment of a server."""

    url: str
    environment: str
    key: str | None
    seconds: float
    """Limit of the requests of one step."""


class FailedCall(RuntimeError):
    """A call that the server refused; the message is for the policy."""


class OrsClient:
    """One session at a time on a server."""

    def __init__(self, place: OrsPlace) -> None:
        headers = {} if place.key is None else {"X-API-Key": place.key}
        self._server = HttpServer("ORS", place.url, headers, place.seconds)
        self._inside = f"/{place.environment}"
        self._name = place.environment
        self._session: str | None = None
        self._left = threading.Event()
        """Set once the session has ended."""
        self._pings = 0
        """Number of pings since the last call."""

    def close(self) -> None:
        """Ends the session and the connections. Never raises."""
        self.leave()
        self._server.close()

    def environments(self) -> list[str]:
        """Returns the names of the server's environments. Raises `HttpFault`, as all below."""
        return self._asked("GET", "/list_environments", list[str])

    def splits(self) -> list[str]:
        """Returns the names of the splits."""
        given = self._asked("GET", f"{self._inside}/splits", list[str | dict[str, Any]])
        return [str(each if isinstance(each, str) else each.get("name")) for each in given]

    def count(self, split: str) -> int:
        """Returns the number of tasks of a split."""
        body = {"split": split}
        return self._asked("POST", f"{self._inside}/num_tasks", _Count, body).num_tasks

    def enter(self, split: str, index: int) -> tuple[str, Sequence[ToolSpec]]:
        """Begins a session with a task. Returns its prompt and tools."""
        self.leave()
        until = self._server.limit()
        self._session = self._named(until)
        self._pings, self._left = 0, threading.Event()
        session = self._session, self._left
        threading.Thread(target=self._ping, args=session, name=PINGING, daemon=True).start()
        body = {"env_name": self._name, "split": split, "index": index}
        self._asked("POST", "/create", object, body, until)
        blocks = self._asked("GET", f"{self._inside}/prompt", list[_Block], None, until)
        return "\n".join(map(str, blocks)), self._tools(until)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Called:
        """Returns the result of a call. A call whose connection breaks after it began is
        asked for again, which does not repeat it. Raises `FailedCall`, and `HttpFault`."""
        until = self._server.limit()
        self._pings = 0
        body: dict[str, Any] = {"name": tool, "input": dict(arguments)}
        events: list[tuple[str, str]] = []
        for attempt in range(_RESUMED + 1):
            events.clear()
            try:
                self._events("POST", f"{self._inside}/call", body, until, events)
                break
            except RefusedRequest:
                raise
            except HttpFault:
                begun = dict(events).get("task_id", body.get("task_id"))
                if begun is None or attempt == _RESUMED or time.monotonic() > until:
                    raise
                body["task_id"] = begun
                time.sleep(_PAUSE_SECONDS)
        return self._result(events)

    def leave(self) -> None:
        """Ends the session. Never raises."""
        self._left.set()
        if self._session is not None:
            for path in ("/delete", "/delete_session"):
                try:
                    until = time.monotonic() + min(2.0, self._server.seconds)
                    self._asked("POST", path, object, None, until)
                except HttpFault:
                    break
            self._session = None

    def alive(self) -> bool:
        """Whether the server still answers."""
        return self._server.healthy("/health")

    def _ping(self, session: str, left: threading.Event) -> None:
        """Keeps a session alive while the policy waits for its turn."""
        while not left.wait(PING_SECONDS) and self._pings < _MOST_PINGS:
            self._pings += 1
            until = time.monotonic() + min(PING_SECONDS, self._server.seconds)
            # The next call tells what is wrong; a closed client is a RuntimeError as well.
            with contextlib.suppress(RuntimeError):
                headers = {"X-Session-ID": session}
                for _ in self._server.parts("POST", "/ping", None, headers, until):
                    pass

    def _named(self, until: float) -> str:
        events: list[tuple[str, str]] = []
        self._events("POST", "/create_session", {}, until, events)
        name = dict(events).get("task_id", "").strip()
        if not name or len(name) > 200 or not name.isprintable() or not name.isascii():
            raise HttpFault(f"{self._server.place} names no session: fix it")
        return name

    def _tools(self, until: float) -> Sequence[ToolSpec]:
        try:
            path = f"{self._inside}/task_tools"
            return self._asked("GET", path, _Tools, None, until).tools
        except RefusedRequest as refused:
            if refused.status != 404:
                raise
            return self._asked("GET", f"{self._inside}/tools", _Tools, None, until).tools

    def _result(self, events: Sequence[tuple[str, str]]) -> Called:
        text = "".join(data for name, data in events if name in ("chunk", "end"))
        failed = next((data for name, data in events if name == "error"), None)
        if failed is not None:
            said = " ".join(failed.split())[:300]
            raise RefusedRequest(
                f"{self._server.place} fails at a call ({said}): fix it", 500, failed
            )
        try:
            result = _Result.model_validate_json(text).root
        except ValidationError as fault:
            raise self._odd("/call", fault) from None
        if isinstance(result, _Failure):
            raise FailedCall(result.error)
        return result.output

    def _events(
        self, method: str, path: str, body: Any, until: float, events: list[tuple[str, str]]
    ) -> None:
        """Adds the events of a stream to `events`, up to the one that ends it."""
        rest = bytearray()
        kind, data = "", list[str]()
        for part in self._server.parts(method, path, body, self._headers(), until):
            rest += part
            *whole, last = rest.split(b"\n") if b"\n" in part else [rest]
            rest = last
            for raw in whole:
                line = raw.decode(errors="replace").rstrip("\r")
                name, _, value = line.partition(":")
                if line and name == "event":
                    kind = value.strip()
                elif line and name == "data":
                    data.append(value.removeprefix(" "))
                elif not line:
                    if kind:
                        events.append((kind, "\n".join(data)))
                    if kind in ("end", "error"):
                        return
                    kind, data = "", []
        raise HttpFault(f"{self._server.place} ends its answer to {path} half-way: fix it")

    def _asked(
        self, method: str, path: str, kind: type[T], body: Any = None, until: float = 0.0
    ) -> T:
        answer = self._server.json(method, path, body, self._headers(), until)
        try:
            return TypeAdapter(kind).validate_python(answer)
        except ValidationError as fault:
            raise self._odd(path, fault) from None

    def _headers(self) -> dict[str, str]:
        return {} if self._session is None else {"X-Session-ID": self._session}

    def _odd(self, path: str, fault: ValidationError) -> HttpFault:
        problem = fault.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, problem["loc"])) or "answer"
        return HttpFault(
            f"{self._server.place} does not keep to the standard in {path} "
            f"({key}: {problem['msg']}): fix it".replace("\n", " ")
        )
