"""A machine with a desktop, as the host speaks with it: HTTP with the server in it.

What a machine answers is the policy's work: every answer has a size and a time.
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
"""Bytes of an answer: what comes from a desktop is the policy's, as a file of any size is."""
Address: TypeAlias = str | tuple[str, int]
"""A unix socket's path, or a host and a port."""
PORTS: tuple[int, ...] = (5000, 9222, 8080)
"""The ports inside that the host can reach: the server's, Chromium's for debugging, VLC's."""


class DesktopLost(RuntimeError):
    """The end of a desktop that died, hung or exceeded a limit; the message is one line."""


class DesktopRefusal(RuntimeError):
    """A request that the desktop's server could not carry out; the message is its reason."""


class NoAnswer(RuntimeError):
    """A request without an answer. `late`: there was none in time."""

    def __init__(self, reason: str, late: bool) -> None:
        super().__init__(reason)
        self.late = late


class Machine(Protocol):
    """A desktop on which one episode is played."""

    size: tuple[int, int]
    """Of the screen in pixels."""
    password: str
    """Of its user, which some set-ups need; "": desktop_env's own."""

    @property
    def pid(self) -> int:
        """A process that is this desktop's alone."""
        ...

    def ready(self) -> None:
        """Waits until the desktop has started. Raises `DomainError` and `DesktopLost`."""
        ...

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        seconds: float = 60.0,
    ) -> bytes:
        """Returns what the desktop's server answers to a request.

        `body`: sent as JSON, or as it is. Raises `DesktopRefusal` where the server says that it
        could not, and `DesktopLost` when the desktop died or does not answer in `seconds`."""
        ...

    def socket_path(self, port: int) -> Path:
        """Returns the unix socket that reaches a port of the desktop, one of `PORTS`."""
        ...

    def close(self) -> None:
        """Ends the episode's desktop and forgets its files."""
        ...


def exchange(
    address: Address,
    method: str,
    path: str,
    body: Mapping[str, Any] | bytes | None,
    seconds: float,
) -> bytes:
    """Returns a server's answer to one request. Raises `DesktopRefusal` and `NoAnswer`."""
    connection = _Connection(address, seconds)
    # A time limit of the socket's would be one for each of its parts.
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
        # Either limit may be met first: the timer's or that of the socket's own wait.
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
