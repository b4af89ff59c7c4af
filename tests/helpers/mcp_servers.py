"""MCP servers for tests, made with the SDK: `python mcp_servers.py KIND [PORT]`.

`notes` keeps notes for each session; the others behave badly in one way each. A server with a port
speaks streamable HTTP, others use their standard streams."""

# The environment of `make test-ecosystems` alone has it.
# pyright: reportMissingImports=false
from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import defaultdict
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

HUGE = 50 * 2**20
kind = sys.argv[1] if __name__ == "__main__" else ""
server = MCPServer("notes")
notes: defaultdict[str, dict[str, str]] = defaultdict(dict)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@server.tool()
def write(name: str, text: str, ctx: Context) -> str:
    """Keeps a note."""
    own(ctx)[name] = text
    return f"kept {name}"


@server.tool()
def read(name: str, ctx: Context) -> str:
    """Returns a note."""
    return own(ctx).get(name) or missing(name)


def own(ctx: Context) -> dict[str, str]:
    """The notes of a session; a program has only one."""
    request = ctx.request_context.request
    return notes[request.headers["mcp-session-id"] if request else ""]


def missing(name: str) -> str:
    raise ValueError(f"there is no note {name!r}")


@server.tool()
def where() -> str:
    """Tells where the server runs, and what it sees there."""
    with socket.socket() as client:
        network = client.connect_ex(("192.0.2.1", 9)) != 101  # unreachable
    home = os.path.exists(os.path.expanduser("~/.bashrc"))
    return f"{os.environ.get('TASK')}, {sys.argv[2]}, home {home}, network {network}"


@server.tool()
async def misbehave(ctx: Context) -> str:
    """Does what this server is for."""
    match kind:
        case "hangs":
            await asyncio.sleep(600)
        case "huge":
            return "x" * HUGE
        case "floods":
            return "x" * 3 * HUGE
        case "dies":
            print("the disk is gone", file=sys.stderr, flush=True)
            os._exit(3)
        case "dies once" if not os.path.exists(sys.argv[2]):
            open(sys.argv[2], "w").close()
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


def lie() -> None:
    """Declares a schema that is none, or one that no result fits."""
    tool = server._tool_manager.get_tool("misbehave")
    assert tool is not None
    if kind == "bad schema":
        tool.parameters = {"type": "object", "properties": {"x": {"type": "number or so"}}}
    else:
        assert tool.fn_metadata.output_schema is not None
        tool.fn_metadata.output_schema["properties"] = {"result": {"type": "integer"}}


if __name__ == "__main__":
    if kind == "silent":  # reads all and answers nothing
        sys.stdin.read()
    if kind in ("lies", "bad schema"):
        lie()
    if len(sys.argv) > 2 and sys.argv[2].isdigit():
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
