"""MCP over the standard streams of a program.

The SDK's own transport copies a growing text for every chunk it reads, which takes seconds of
the shared loop for a result of 50 MB, and waits two seconds for a program that does not end."""

# The package is an extra, so type checkers may lack it.
# pyright: reportMissingImports=false
from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import IO, Any

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from rlanything_gyms.tools.servers import ServerProgram, box

MOST_BYTES = 128 * 2**20
"""Largest message of a server in bytes; a larger one ends the session. Servers of the SDK send a
text twice, as content and as structured content."""
_END_SECONDS, _KILL_SECONDS = 0.5, 2.0
"""Time to end by itself, and until a killed program is gone."""
_SAID_BYTES = 4096


class RunningProgram:
    """A program that speaks MCP."""

    def __init__(self, process: asyncio.subprocess.Process, complaints: IO[bytes]) -> None:
        self.process = process
        self.too_long = False
        """Whether it sent a message over the limit."""
        self._complaints = complaints
        self._last_line = ""

    async def line(self) -> bytes:
        """Returns the next line that it wrote; empty at the end, and for one over the limit."""
        assert self.process.stdout is not None
        try:
            return await self.process.stdout.readline()
        except ValueError:
            self.too_long = True
            return b""

    def last_words(self) -> str:
        """Returns why it ended: the last line that it wrote to standard error."""
        if self.too_long:
            return f"a message of over {MOST_BYTES:,} bytes"
        if self._complaints.closed:
            return self._last_line
        size = self._complaints.seek(0, os.SEEK_END)
        self._complaints.seek(max(0, size - _SAID_BYTES))
        lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip()[:200] if lines else "it wrote nothing to stderr"

    async def end(self) -> None:
        """Closes its standard input, and kills it with all its processes if that does not end
        it."""
        process = self.process
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILL_SECONDS):
                await process.wait()
        self._last_line = self.last_words()
        self._complaints.close()


async def started(program: ServerProgram, task_id: str) -> RunningProgram:
    """Returns a program that was started. Raises OSError."""
    words = [word.replace("{id}", task_id) for word in program.words]
    complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it ends
    streams: dict[str, Any] = {
        "stdin": asyncio.subprocess.PIPE,
        "stdout": asyncio.subprocess.PIPE,
        "stderr": complaints,
        "start_new_session": True,
        "limit": MOST_BYTES,
    }
    try:
        if not program.contained:
            streams |= {"env": {**os.environ, **program.variables}, "cwd": program.folder}
            process = await asyncio.create_subprocess_exec(*words, **streams)
            return RunningProgram(process, complaints)
        with open(os.memfd_create("variables"), "w+b") as variables:
            for name, value in program.variables.items():
                variables.write(b"--setenv\0%b\0%b\0" % (name.encode(), value.encode()))
            variables.seek(0)
            words = box(program, words, variables.fileno())
            streams |= {"env": {}, "cwd": "/", "pass_fds": [variables.fileno()]}
            process = await asyncio.create_subprocess_exec(*words, **streams)
            return RunningProgram(process, complaints)
    except BaseException:
        complaints.close()
        raise


@asynccontextmanager
async def streams_of(running: RunningProgram) -> AsyncGenerator[tuple[Any, Any], None]:
    """Yields the streams of messages from and to a program, as the SDK's sessions take them."""
    process = running.process
    into, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, out = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with into:
                while line := await running.line():
                    # Whatever else it prints to its standard output is ignored.
                    with contextlib.suppress(ValueError):
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                        await into.send(SessionMessage(message))

    async def send() -> None:
        assert process.stdin is not None
        async with out:
            async for outgoing in out:
                text = outgoing.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                try:
                    await process.stdin.drain()
                except OSError:  # it has ended; the other stream's end says so
                    return

    async with anyio.create_task_group() as group:
        group.start_soon(receive)
        group.start_soon(send)
        try:
            yield read, write
        finally:
            read.close()
            write.close()
            group.cancel_scope.cancel()
