"""MCP servers in a recipe: programs to run, or addresses."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from rlanything.domains.base import CommandWords, DomainError, DomainOptions, SecretVariable
from rlanything_sandbox.bubblewrap import bubblewrap, no_bubblewrap, offline_box, resource_limits

_LIMITED = """
import json, os, resource, sys
for name, most in json.loads(sys.argv[1]).items():
    resource.setrlimit(getattr(resource, name), (most, most))
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as fault:
    sys.exit(f"{sys.argv[2]}: {fault.strerror}")
"""


class McpFault(RuntimeError):
    """A failure of a server; one line. In a call it ends the episode as an unexplained fault, which
    a replay explains. `unreachable`: nothing answers at its address, which no call of this episode
    brought about."""

    def __init__(self, message: str, unreachable: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable


class ServerOptions(DomainOptions):
    """One MCP server: a `command` to run for each episode, or a `url`."""

    command: Annotated[CommandWords, Field(min_length=1)] | None = None
    """Words of a program that speaks MCP over its standard streams; `{id}` is the task's."""
    url: str | None = None
    """Address of a server that speaks MCP over streamable HTTP."""
    key_variable: SecretVariable | None = None
    """The environment variable with the key that is sent to `url`; None if none is needed."""
    folder: str | None = None
    """Working directory of a command; None: the current one."""
    shown: Sequence[str] = ()
    """Further files and folders that a command can read."""
    variables: Mapping[str, Any] = Field(default_factory=dict)
    """Variables of a command's environment."""
    memory_mb: Annotated[int, Field(ge=64)] = 2048
    """Memory of each process of a command, and of its /tmp."""
    contained: bool = True
    """Whether a command runs in a box without network."""


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """A command that is run for each episode."""

    words: Sequence[str]
    folder: Path
    """Working directory; readable in the box, but not writable."""
    shown: Sequence[Path]
    variables: Mapping[str, str]
    memory_mb: int
    contained: bool
    """False runs it with all permissions of the user."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server that runs elsewhere."""

    url: str
    key_variable: str | None


@dataclass(frozen=True, slots=True)
class ServersSettings:
    """All servers of a recipe."""

    servers: Mapping[str, ServerProgram | Address]
    timeout_seconds: float
    """Limit of starting the servers, and of the calls of one answer."""


def server_of(name: str, options: ServerOptions) -> ServerProgram | Address:
    """Returns a server with checked options. Raises `DomainError`."""
    place = f"mcp.{name}"
    if not name.isidentifier():
        raise DomainError(f"{place}: name servers with letters, digits and _, such as files")
    if (options.command is None) == (options.url is None):
        raise DomainError(f"{place}: write command=[...] or url=..., not both")
    if options.url is not None:
        address = urlsplit(options.url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise DomainError(f"{place}.url is {options.url!r:.80}: write http://HOST:PORT/mcp")
        own = {"folder", "shown", "variables", "memory_mb", "contained"} & options.model_fields_set
        if own:
            raise DomainError(f"{place}.{min(own)} is for a command, not for a url: remove it")
        return Address(options.url, options.key_variable)
    if options.key_variable is not None:
        raise DomainError(f"{place}.key_variable is for a url; a command has variables")
    paths = [Path(each).absolute() for each in (options.folder or ".", *options.shown)]
    missing = next((path for path in paths if not path.exists()), None)
    if missing is not None:
        raise DomainError(f"{place}: {missing} does not exist; name existing paths")
    texts = {str(key): str(value) for key, value in options.variables.items()}
    if odd := next((key for key in texts if "\0" in key + texts[key] or "=" in key), None):
        raise DomainError(f"{place}.variables: {odd!r:.80} is no name, or has a NUL; remove it")
    if options.contained and bubblewrap() is None:
        raise DomainError(
            f"{place}: {no_bubblewrap()}, or set contained=false if you trust the policy with this "
            "machine; a command is run in a box otherwise"
        )
    return ServerProgram(
        options.command or (), paths[0], paths[1:], texts, options.memory_mb, options.contained
    )


def box(program: ServerProgram, words: Sequence[str], variables: int) -> list[str]:
    """Returns the command line of a box around these words. `variables`: a file with options that
    set the environment, since everyone on the machine can read command lines."""
    bwrap = bubblewrap()
    assert bwrap is not None  # see server_of
    limits = json.dumps(resource_limits(program.memory_mb))
    start = [sys.executable, "-I", "-S", "-c", _LIMITED, limits, *words]
    folder, shown, memory = program.folder, program.shown, program.memory_mb
    return offline_box(bwrap, "server", folder, shown, memory, start, ["--args", str(variables)])
