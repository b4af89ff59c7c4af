"""A machine with a desktop, seen from the host: HTTP with the server in it.

A machine's answers come from the policy: each has a size limit and a time limit.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

LARGEST_ANSWER = 256 * 2**20
"""Largest answer in bytes: the policy controls it, including files of any size."""
Address: TypeAlias = str | tuple[str, int]
"""A unix socket's path, or a host and a port."""
Body: TypeAlias = Mapping[str, Any] | bytes | None
"""Content of a request: sent as JSON, bytes as they are, or nothing."""
PORTS: tuple[int, ...] = (5000, 9222, 8080)
"""Ports inside that the host can reach: the server's, Chromium's for debugging, VLC's."""


class DesktopLost(RuntimeError):
    """A desktop that died, hung or exceeded a limit; the message is one line."""


class DesktopRefusal(RuntimeError):
    """A request that the desktop's server could not carry out; the message is its reason."""


class NoAnswer(RuntimeError):
    """A request without an answer. `late`: because of the time limit."""

    def __init__(self, reason: str, late: bool) -> None:
        super().__init__(reason)
        self.late = late


class Machine(Protocol):
    """A desktop on which one episode is played."""

    size: tuple[int, int]
    """Screen size in pixels."""
    password: str
    """Password of its user, which some set-ups need; "": desktop_env's default."""

    @property
    def pid(self) -> int:
        """A process that belongs only to this desktop."""
        ...

    def ready(self) -> None:
        """Waits until the desktop has started. Raises `DomainError` and `DesktopLost`."""
        ...

    def request(self, method: str, path: str, body: Body = None, seconds: float = 60.0) -> bytes:
        """Returns the answer of the desktop's server to a request.

        `body`: sent as JSON, or bytes as they are. Raises `DesktopRefusal` if the server cannot
        carry it out, and `DesktopLost` if the desktop died or does not answer in `seconds`."""
        ...

    def socket_path(self, port: int) -> Path:
        """Returns the unix socket that reaches a port of the desktop, one of `PORTS`."""
        ...

    def close(self) -> None:
        """Ends the episode's desktop and deletes its files."""
        ...


def exchange(address: Address, method: str, path: str, body: Body, seconds: float) -> bytes:
    """Returns a server's answer to one request. Raises `DesktopRefusal` and `NoAnswer`."""
    connection = _Connection(address, seconds)
    # A timeout of the socket would apply to each of its reads separately.
    timer = threading.Timer(seconds, connection.abort)
    timer.daemon = True
    timer.start()
    content = body if isinstance(body, bytes | None) else json.dumps(body)
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    try:
        connection.request(method, path, content, {"Content-Type": kind})
        response = connection.getresponse()
        answer = response.read(LARGEST_ANSWER + 1)
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as fault:
        # The timer's limit and the socket's own timeout can be reached in either order.
        late = connection.aborted or isinstance(fault, TimeoutError)
        reason = f"no answer to {path} in {seconds:g} s" if late else f"{path}: {fault!r}"
        raise NoAnswer(reason, late) from fault
    finally:
        timer.cancel()
        connection.close()
    if len(answer) > LARGEST_ANSWER:
        raise DesktopRefusal(f"{path}: the answer is larger than {LARGEST_ANSWER} bytes")
    if response.status >= 400:
        raise DesktopRefusal(f"{path}: {_reason(answer)}")
    return answer


class _Connection(http.client.HTTPConnection):
    """One HTTP request over a socket of either kind."""

    def __init__(self, address: Address, seconds: float) -> None:
        super().__init__("desktop", timeout=seconds)
        self.aborted = False
        self._address = address

    def connect(self) -> None:
        kind = socket.AF_UNIX if isinstance(self._address, str) else socket.AF_INET
        self.sock = socket.socket(kind)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._address)

    def abort(self) -> None:
        self.aborted = True
        with contextlib.suppress(OSError, AttributeError):
            self.sock.shutdown(socket.SHUT_RDWR)


def _reason(answer: bytes) -> str:
    try:
        said = json.loads(answer)["message"]
    except (ValueError, KeyError, TypeError):
        said = answer[:200].decode("utf-8", "replace")
    return " ".join(str(said).split())[:400]
