"""Sessions with MCP servers: one with each server in every episode."""

# The package is an extra, so type checkers may lack it.
# pyright: reportMissingImports=false
from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import httpx2
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import validator_for
from mcp import ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    CallToolResult,
    InputRequiredResult,
    PaginatedRequestParams,
)
from referencing import Registry
from referencing.exceptions import Unresolvable

from rlanything.domains.base import EpisodeError
from rlanything_gyms.tools.methods import Tool, ToolError, on_loop, said
from rlanything_gyms.tools.servers import Address, McpFault, ServerProgram, ServersSettings
from rlanything_gyms.tools.stdio import MOST_BYTES, RunningProgram, started, streams_of

_MOST_TOOLS = 512
_MOST_DESCRIBED = 2**20
"""Largest size in characters of the descriptions of a server's tools."""
_CLOSE_SECONDS = 4.0
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
"""Longest name of a function in OpenAI's API."""
# The SDK logs every fault with its traceback, and faults are reported in one line here.
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False


class Servers:
    """The sessions of one episode. A reward function gets them too, and may call any tool."""

    def __init__(self, settings: ServersSettings) -> None:
        self._settings = settings
        self._open: dict[str, _Connection] = {}
        self._end = 0.0
        self._called = False
        self._task_id = ""
        self.refused: Counter[str] = Counter()
        """Number of requests of servers that were refused: `NAME sampling/createMessage`, ..."""

    def start(self, task_id: str, with_names: bool) -> list[Tool]:
        """Starts all servers and returns their tools. `with_names`: whether the names of tools
        begin with that of their server, as they do if there are several. Raises `EpisodeError`."""
        self.stop()
        self._task_id, self._called = task_id, False
        self.refused = Counter()
        self.begin_calls()
        for name, server in self._settings.servers.items():
            self._open[name] = _Connection(name, server, task_id, self.refused)
        try:
            on_loop(_all_started([*self._open.values()], self._settings.timeout_seconds))
        except McpFault as fault:
            self.stop()
            raise EpisodeError(task_id, str(fault)) from fault
        prefixed = with_names or len(self._open) > 1
        return [
            self._tool(connection, tool, f"{name}__" if prefixed else "")
            for name, connection in self._open.items()
            for tool in connection.tools
        ]

    def begin_calls(self) -> None:
        """Begins a new time limit for calls."""
        self._end = time.monotonic() + self._settings.timeout_seconds

    def call(self, server: str, tool: str, arguments: Mapping[str, Any] | None = None) -> str:
        """Returns the result of a call as the policy would read it; for an error a text that begins
        with `error: `. Raises `McpFault` or `EpisodeError` if the server fails."""
        try:
            return self._called_on(server, tool, dict(arguments or {}))
        except ToolError as fault:
            return f"error: {fault}"

    def _called_on(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        connection = self._open.get(server)
        if connection is None:
            raise ToolError(f"there is no server {server!r} now; name one of mcp in options")
        left = self._end - time.monotonic()
        try:
            return on_loop(connection.call(tool, arguments, left))
        except McpFault as fault:
            if self._called and not fault.unreachable:
                raise  # a call may have brought it about
            raise EpisodeError(self._task_id, str(fault)) from fault

    def stop(self) -> list[str]:
        """Ends the sessions. Returns a line for each kind of request that was refused."""
        connections, self._open = [*self._open.values()], {}
        if connections:
            on_loop(_all_stopped(connections))
        return [f"(refused: {each}, {count} times)" for each, count in sorted(self.refused.items())]

    def _tool(self, connection: _Connection, tool: Any, prefix: str) -> Tool:
        name = _NOT_IN_NAMES.sub("_", f"{prefix}{tool.name}")[:_LONGEST_NAME]
        check = connection.checks[tool.name]
        call = partial(self._checked, connection.name, tool.name, check)
        return Tool(name, tool.description or "", tool.input_schema, call)

    def _checked(
        self, server: str, tool: str, check: Callable[[Any], None], arguments: Mapping[str, Any]
    ) -> str:
        check(dict(arguments))
        self._called = True
        return self._called_on(server, tool, dict(arguments))


class _Session(ClientSession):
    """A session that offers neither roots nor sampling nor elicitation, and counts what a server
    asks for anyway; the answer is the protocol's error."""

    on_asked: Callable[[str], None]

    async def dispatch_input_request(self, ctx: Any, request: Any) -> Any:
        self.on_asked(request.method)
        return await super().dispatch_input_request(ctx, request)


class _Connection:
    """The session with one server, which a task of the loop keeps open."""

    def __init__(
        self, name: str, server: ServerProgram | Address, task_id: str, refused: Counter[str]
    ) -> None:
        self.name = name
        self.tools: list[Any] = []
        self.checks: dict[str, Callable[[Any], None]] = {}
        """Checks of arguments, by tool."""
        self._server = server
        self._task_id = task_id
        self._refused = refused
        self._program: RunningProgram | None = None
        self._session: _Session | None = None
        self._task: asyncio.Task[None] | None = None
        self._fault: BaseException | None = None
        """The exception that ended the session."""
        self._ending = asyncio.Event()

    @property
    def place(self) -> str:
        """Returns the server in words."""
        at = f" at {self._server.url}" if isinstance(self._server, Address) else ""
        return f"the MCP server {self.name!r}{at}"

    async def start(self, seconds: float) -> None:
        """Opens the session and lists the tools. Raises `McpFault`."""
        opened = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._kept(opened))
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(opened)
        except TimeoutError:
            raise McpFault(
                f"{self.place} was not ready within {seconds:g} s: see to it, or raise "
                "domain.options.timeout_seconds"
            ) from None

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> str:
        """Returns a tool's result as text. Raises `ToolError` for the tool's own errors and
        `McpFault`."""
        assert self._session is not None
        try:
            async with asyncio.timeout(seconds):
                result = await self._session.call_tool(tool, arguments, allow_input_required=True)
        except TimeoutError:
            raise McpFault(
                f"{self.place} gave no answer to {tool} in time: see to it, or raise "
                "domain.options.timeout_seconds"
            ) from None
        except MCPError as fault:
            if self._is_over(fault):
                assert self._task is not None
                await asyncio.wait([self._task], timeout=_CLOSE_SECONDS / 4)
                raise self._gone(self._fault or fault) from fault
            raise ToolError(_line(fault.message)) from None
        except Exception as fault:  # results that break the protocol or their own schema
            raise ToolError(f"the server's result is invalid ({_line(str(fault))})") from None
        if isinstance(result, InputRequiredResult):
            asked = [each.method for each in (result.input_requests or {}).values()]
            for method in asked:
                self._asked(method)
            raise ToolError(f"the server asked for {', '.join(asked) or 'input'}: refused")
        assert isinstance(result, CallToolResult)
        text = _text(result)
        if result.is_error:
            raise ToolError(text or "the tool failed")
        return text

    async def stop(self) -> None:
        """Closes the session and ends a program."""
        self._ending.set()
        if self._task is None:
            return
        _, pending = await asyncio.wait([self._task], timeout=_CLOSE_SECONDS)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=_CLOSE_SECONDS)

    async def _kept(self, opened: asyncio.Future[None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                read, write = await stack.enter_async_context(self._streams())
                session = _Session(read, write)
                session.on_asked = self._asked
                await stack.enter_async_context(session)
                await _negotiate(session)
                self.tools = await _listed(session)
                self.checks = {tool.name: _check(tool) for tool in self.tools}
                self._session = session
                opened.set_result(None)
                await self._ending.wait()
        except BaseException as fault:
            self._fault = _leaf(fault)
            if not opened.done():
                opened.set_exception(self._not_started(fault))
                opened.exception()  # nobody may be waiting any more

    @asynccontextmanager
    async def _streams(self) -> AsyncGenerator[tuple[Any, Any], None]:
        if isinstance(self._server, ServerProgram):
            self._program = await started(self._server, self._task_id)
            try:
                async with streams_of(self._program) as streams:
                    yield streams
            finally:
                await asyncio.shield(self._program.end())
            return
        variable = self._server.key_variable
        headers = {"accept-encoding": "identity"}
        if variable is not None:
            headers["authorization"] = f"Bearer {os.environ.get(variable, '')}"
        async with (
            httpx2.AsyncClient(
                headers=headers, timeout=httpx2.Timeout(30.0, read=None), transport=_Limited()
            ) as client,
            streamable_http_client(
                self._server.url, http_client=client, max_sse_event_size=MOST_BYTES
            ) as streams,
        ):
            yield streams

    def _asked(self, method: str) -> None:
        self._refused[f"{self.name} {method}"] += 1

    def _is_over(self, fault: MCPError) -> bool:
        """Returns whether an error is the end of the session, and not the server's own answer:
        servers use the code of closed connections for other errors."""
        if self._program is not None:
            return self._program.process.returncode is not None or (
                fault.code == CONNECTION_CLOSED and fault.message == "Connection closed"
            )
        return fault.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT)

    def _gone(self, fault: BaseException) -> McpFault:
        if self._program is not None:
            return McpFault(f"{self.place} ended ({self._program.last_words()}): fix it")
        # The call has not reached it, so it is not what ended it.
        unreachable = isinstance(fault, httpx2.ConnectError)
        return McpFault(
            f"{self.place} fails ({_line(str(fault))}): start it, or fix its url", unreachable
        )

    def _not_started(self, fault: BaseException) -> McpFault:
        fault = _leaf(fault)
        if isinstance(fault, McpFault):
            return McpFault(f"{self.place} cannot be used: {fault}")
        if self._program is not None and isinstance(fault, MCPError) and self._is_over(fault):
            return self._gone(fault)
        if isinstance(self._server, ServerProgram) and isinstance(fault, OSError):
            return McpFault(f"{self.place}: {self._server.words[0]!r}: {fault.strerror}")
        return McpFault(f"{self.place} cannot be used ({said(fault)}): start it, or fix it")


def _leaf(fault: BaseException) -> BaseException:
    """Returns the first exception of a group."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


async def _all_started(connections: Sequence[_Connection], seconds: float) -> None:
    starts = [connection.start(seconds) for connection in connections]
    faults = await asyncio.gather(*starts, return_exceptions=True)
    for fault in faults:
        if fault is not None:
            raise fault


async def _all_stopped(connections: Sequence[_Connection]) -> None:
    await asyncio.gather(*(each.stop() for each in connections), return_exceptions=True)


async def _negotiate(session: ClientSession) -> None:
    """Begins with the handshake that opens a session at a server, since an episode is one; only
    servers of the newest protocol, which has no sessions, refuse it."""
    try:
        await session.initialize()
    except MCPError as fault:
        if fault.code == CONNECTION_CLOSED:
            raise
        await session.discover()


async def _listed(session: ClientSession) -> list[Any]:
    """Returns all tools of a server. Raises `McpFault` for too many."""
    tools: list[Any] = []
    cursor: str | None = None
    while True:
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        size = sum(len(tool.model_dump_json()) for tool in tools)
        if len(tools) > _MOST_TOOLS or size > _MOST_DESCRIBED:
            raise McpFault(
                f"it lists over {_MOST_TOOLS} tools, or over {_MOST_DESCRIBED:,} characters of "
                "them: have it offer fewer"
            )
        cursor = page.next_cursor
        if not cursor:
            return tools


def _check(tool: Any) -> Callable[[Any], None]:
    """Returns a function that checks the arguments of a tool. Raises `McpFault` for a schema
    that is none."""
    schema = tool.input_schema
    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
        if schema.get("type") != "object":
            raise McpFault(f"the schema of its tool {tool.name!r:.80} is no object: fix it")
    except SchemaError as fault:
        raise McpFault(
            f"the schema of its tool {tool.name!r:.80} is invalid ({_line(fault.message)}): fix it"
        ) from None
    # An empty registry: no reference is fetched.
    checker = kind(schema, registry=Registry())

    def check(arguments: Any) -> None:
        try:
            error = best_match(checker.iter_errors(arguments))
        except Unresolvable as fault:
            raise ToolError(f"the tool's schema is invalid ({_line(str(fault))})") from None
        if error is not None:
            place = ".".join(map(str, error.absolute_path))
            raise ToolError(_line(f"argument {place}: {error.message}" if place else error.message))

    return check


def _text(result: CallToolResult) -> str:
    """Returns a result as the policy reads it; images, sounds and files are only named."""
    parts = [_part(part) for part in result.content]
    if not parts and result.structured_content is not None:
        return str(result.structured_content)
    return "\n".join(parts)


def _part(part: Any) -> str:
    match part.type:
        case "text":
            return part.text
        case "resource":
            resource = part.resource
            return getattr(resource, "text", None) or f"[{resource.uri}: not shown]"
        case "resource_link":
            return f"[{part.uri}]"
    return f"[{part.type}, {getattr(part, 'mime_type', 'unknown')}: not shown]"


def _line(text: str) -> str:
    """Returns the beginning of a text in one line."""
    return " ".join(text.split())[:300]


class _Limited(httpx2.AsyncHTTPTransport):
    """HTTP with a limit for the size of a response, which the SDK reads whole."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.ReadError("the response is compressed, though that was not accepted")
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        response.stream = _LimitedStream(stream)
        return response


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream
        self._left = MOST_BYTES

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.ReadError(f"the response has over {MOST_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        with contextlib.suppress(httpx2.HTTPError):
            await self._stream.aclose()
