"""Desktops on machines of a provider: desktop_env's docker, vmware, virtualbox and aws, or your
own.

    DesktopEnvironment(evaluators, options, ProvidedDesktops(python, ProviderOptions("docker")))

Such a machine runs OSWorld's own server, not ours. Its description of the screen is converted here
to ours, and actions are code that it runs. The evaluators reach the machine's ports through
sockets, so that they stay in their box.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rlanything.domains.base import DomainError
from rlanything_osworld.foreign_tree import LISTING, foreign_tree, window_script
from rlanything_osworld.guest.relay import join
from rlanything_osworld.machine import (
    PORTS,
    Body,
    DesktopLost,
    DesktopRefusal,
    NoAnswer,
    exchange,
)
from rlanything_osworld.program import LineProgram, last_line

NAMESPACES = "namespaces"
PROVIDERS = ("docker", "vmware", "virtualbox", "aws")
START_SECONDS = 900.0
"""Time limit in seconds for a provider to start or revert a machine."""
STOP_SECONDS = 120.0
LOOK_SECONDS = 0.5
"""Seconds between two readings of a screen: a foreign machine does not report when it has
reacted."""
DRAG_SECONDS = 0.5
_PROGRAM = Path(__file__).parent / "evaluators" / "provide.py"


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """A provider, and the options that desktop_env passes to it. Raises `DomainError` for invalid
    combinations."""

    provider: str
    """One of `PROVIDERS`, or `module:Class`: a class with the methods of desktop_env's
    providers."""
    path_to_vm: str | None = None
    """File of the machine (docker: the image, from which each environment gets its own machine);
    None: desktop_env's default."""
    snapshot_name: str = "init_state"
    """Snapshot to which a machine is reverted; aws: the id of the image."""
    region: str | None = None
    screen_size: Sequence[int] = (1920, 1080)
    headless: bool = True
    client_password: str = ""
    """Password of the machine's user; "": desktop_env's default."""

    def __post_init__(self) -> None:
        known = ", ".join((NAMESPACES, *PROVIDERS))
        if self.provider not in PROVIDERS and ":" not in self.provider:
            raise DomainError(f"provider is {self.provider!r}: use one of {known}, or module:Class")
        if self.provider == "aws" and self.path_to_vm is not None:
            raise DomainError("path_to_vm: aws starts machines of its own: leave it out")
        if self.provider == "aws" and (self.region is None or self.snapshot_name == "init_state"):
            raise DomainError("provider aws needs region, and snapshot_name with an image's id")
        size = self.screen_size
        if len(size) != 2 or any(type(each) is not int or each < 1 for each in size):
            raise DomainError(f"screen_size is {size!r}: give width and height in pixels")

    @property
    def one_machine(self) -> bool:
        """Whether one environment at a time can have the machine."""
        return self.provider in ("vmware", "virtualbox") and self.path_to_vm is not None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the screen in pixels."""
        width, height = self.screen_size
        return width, height


class ProvidedDesktops:
    """One machine, reverted for each episode. `python`: a Python with desktop_env."""

    def __init__(self, python: Path, options: ProviderOptions) -> None:
        self._python = python
        self._options = options
        self._program: LineProgram | None = None

    def prepare(self) -> None:
        """Does nothing: a second machine would cost as much as the first."""

    def take(self) -> ProvidedDesktop:
        """Returns the machine in its initial state. Raises `DomainError` if it cannot be started,
        and `DesktopLost` if it ran before."""
        first = self._program is None
        if self._program is None:
            command = [str(self._python), "-B", str(_PROGRAM), json.dumps(asdict(self._options))]
            paths = os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH"))))
            self._program = LineProgram(command, {**os.environ, "PYTHONPATH": paths}, os.getcwd())
        fault = None
        try:
            answer = self._program.ask({}, START_SECONDS)
            if "error" not in answer:
                return self._desktop(answer)
            fault = str(answer["error"])
        except (OSError, ValueError):
            fault = last_line(self._program.last_words())
        self.close()
        if first:
            name = self._options.provider
            raise DomainError(f"provider {name} gives no machine ({fault}): see provider_options")
        raise DesktopLost(f"the provider gives no machine any more ({fault})")

    def close(self) -> None:
        """Stops the machine."""
        if self._program is not None:
            self._program.close(STOP_SECONDS)
            self._program = None

    def _desktop(self, answer: Mapping[str, Any]) -> ProvidedDesktop:
        assert self._program is not None
        ports = dict(zip(PORTS, answer["ports"], strict=True))
        place = Place(answer["host"], ports, answer["password"])
        return ProvidedDesktop(place, self._options.size, self._program.pid)


@dataclass(frozen=True, slots=True)
class Place:
    """Address of a machine."""

    host: str
    ports: Mapping[int, int]
    """Ports of its host that lead to the ports in `PORTS`."""
    password: str


class ProvidedDesktop:
    """A machine with OSWorld's server, for one episode; it answers an environment like our own
    server."""

    def __init__(self, place: Place, size: tuple[int, int], pid: int) -> None:
        self.size = size
        self.password = place.password
        self._place = place
        self._pid = pid
        self._folder = tempfile.TemporaryDirectory(prefix="rlanything-machine-")
        self._doors = [
            _Door(str(self.socket_path(port)), (place.host, place.ports[port])) for port in PORTS
        ]

    @property
    def pid(self) -> int:
        """The process that started the machine."""
        return self._pid

    def ready(self) -> None:
        """Returns at once: the provider has already waited."""

    def socket_path(self, port: int) -> Path:
        """Returns the unix socket that reaches a port of the machine, one of `PORTS`."""
        return Path(self._folder.name, f"{port}")

    def close(self) -> None:
        """Leaves the machine running; the next episode reverts it."""
        for door in self._doors:
            door.close()
        self._folder.cleanup()

    def request(self, method: str, path: str, body: Body = None, seconds: float = 60.0) -> bytes:
        """Returns the answer of our own server; `tree` and `act` are computed here."""
        parts = urlsplit(path)
        if parts.path == "/tree":
            quiet = float(parse_qs(parts.query).get("quiet", ["0"])[0])
            return json.dumps(self._tree(quiet, seconds)).encode()
        if parts.path == "/act" and isinstance(body, Mapping):
            self._run(_code(body["calls"]), seconds)
            return b"{}"
        if parts.path == "/execute" and isinstance(body, Mapping) and "timeout" in body:
            # OSWorld's server has only its own time limit.
            command = ["timeout", f"{body['timeout']:g}", *body["command"]]
            return self._ask(method, path, {"command": command, "shell": False}, seconds)
        return self._ask(method, path, body, seconds)

    def _ask(self, method: str, path: str, body: Body, seconds: float) -> bytes:
        address = (self._place.host, self._place.ports[5000])
        try:
            return exchange(address, method, path, body, seconds)
        except NoAnswer as fault:
            raise DesktopLost(f"the machine does not answer ({fault})") from fault

    def _run(self, code: str, seconds: float) -> str:
        """Returns the output of Python code that the machine runs. Raises `DesktopRefusal`."""
        body = {"command": ["python", "-c", code], "shell": False}
        said = self._ask("POST", "/execute", body, seconds)
        try:
            answer = json.loads(said)
            code, output, error = (answer[key] for key in ("returncode", "output", "error"))
        except (LookupError, TypeError, ValueError) as fault:
            raise DesktopLost(f"the machine's server answers nonsense ({fault!r})") from fault
        if code != 0:
            raise DesktopRefusal(str(error).strip().rpartition("\n")[2] or "it failed")
        return output

    def _tree(self, quiet: float, seconds: float) -> dict[str, Any]:
        """Returns the screen once two readings agree and nothing is at work, or after the time
        limit."""
        deadline = time.monotonic() + quiet
        state, _ = self._look(seconds)
        while time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            after, at_work = self._look(seconds)
            if after == state and not at_work:
                break
            state = after
        return state

    def _look(self, seconds: float) -> tuple[dict[str, Any], bool]:
        try:
            windows, at_work = json.loads(self._run(window_script(LISTING), seconds))
            xml = json.loads(self._ask("GET", "/accessibility", None, seconds))["AT"]
            return foreign_tree(xml, windows, self.size), bool(at_work)
        except (
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
            DesktopRefusal,
        ) as fault:
            raise DesktopLost(f"the machine does not show its screen ({fault!r})") from fault


class _Door:
    """A unix socket that reaches a port of a machine, open until `close`."""

    def __init__(self, path: str, address: tuple[str, int]) -> None:
        class _Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError), socket.create_connection(address, 10) as other:
                    other.settimeout(None)
                    join(self.request, other)

        class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True
            block_on_close = False

        self._server = _Server(path, _Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _code(calls: Sequence[Sequence[Any]]) -> str:
    """Returns Python that executes calls of `pyautogui`; the machine has the original module."""
    lines = ["import pyautogui", "pyautogui.FAILSAFE = False"]
    for name, *arguments in calls:
        if name == "activate":
            return window_script(f"windows.activate({arguments[0]!r})")
        if name == "write":
            lines += _typing(arguments[0])
        elif name == "dragTo":
            lines.append(f"pyautogui.dragTo(*{arguments!r}, duration={DRAG_SECONDS})")
        else:
            lines.append(f"pyautogui.{name}(*{arguments!r})")
    return "\n".join(lines)


def _typing(text: str) -> list[str]:
    """Returns the lines that type a text: the original types `>` for `<`, and silently skips
    letters that the keyboard lacks."""
    if not text.isascii():
        raise DesktopRefusal("this machine's keyboard has plain English letters alone")
    between = "pyautogui.hotkey('shift', ',')"
    parts = [f"pyautogui.write({part!r})" if part else "" for part in text.split("<")]
    return [line for line in f"\n{between}\n".join(parts).splitlines() if line]
