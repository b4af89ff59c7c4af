"""MCP servers for tests, made with the SDK: `python mcp_server.py KIND [PORT]`.

`notes` keeps notes for the session; the others behave badly in one way each. With a port it
serves streamable HTTP, otherwise its standard streams."""

# The environment of `make test-ecosystems` alone has it.
# pyright: reportMissingImports=false
from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

HUGE = 50 * 2**20
kind = sys.argv[1]
server = MCPServer("notes")
notes: dict[str, str] = {}


@server.tool()
def write(name: str, text: str) -> str:
    """Keeps a note."""
    notes[name] = text
    return f"kept {name}"


@server.tool()
def read(name: str) -> str:
    """Returns a note."""
    if name not in notes:
        raise ValueError(f"there is no note {name!r}")
    return notes[name]


@server.tool()
def where() -> str:
    """Tells where the server runs, and what it can do there."""
    seen = [os.environ.get("TASK", "no task"), f"home {os.path.exists('/root/.bashrc')}"]
    return ", ".join([*seen, f"tmp {sorted(os.listdir('/tmp'))}"])


@server.tool()
async def misbehave(ctx: Context) -> str:
    """Does what this server is for."""
    match kind:
        case "hangs":
            await asyncio.sleep(600)
        case "huge":
            return "x" * HUGE
        case "dies":
            print("the disk is gone", file=sys.stderr, flush=True)
            os._exit(3)
        case "asks":
            return await asked(ctx)
    return "nothing"


async def asked(ctx: Any) -> str:
    """Asks the client for everything that servers can ask for; returns its refusals."""
    from mcp.types import SamplingMessage, TextContent
    from pydantic import BaseModel

    class Name(BaseModel):
        name: str

    content = TextContent(type="text", text="Hello")
    message = SamplingMessage(role="user", content=content)
    refusals: list[str] = []
    for ask in (
        lambda: ctx.session.list_roots(),
        lambda: ctx.session.create_message([message], max_tokens=8),
        lambda: ctx.elicit("Who are you?", Name),
    ):
        try:
            refusals.append(f"granted {await ask()}")
        except Exception as fault:
            refusals.append(str(fault))
    return "; ".join(refusals)


if __name__ == "__main__":
    if kind == "mute":
        time.sleep(600)
    if kind == "silent":  # reads everything and answers nothing
        for _ in sys.stdin:
            pass
    if len(sys.argv) > 2:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
