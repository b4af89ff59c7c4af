"""Answers the host's requests: those of OSWorld's controllers and evaluators, and our own.

    python3 server.py SERVER_FD CHROMIUM_FD VLC_FD

The descriptors are listening sockets that the host created and no longer uses. Every request gets
an answer; a bad one gets an error in JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import socketserver
import sys
import threading
import traceback
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import answers
import relay

LARGEST_REQUEST = 256 * 2**20
DUMPABLE = 4
"""Option of `prctl`."""


class GuestRequest(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = 3600

    def do_GET(self) -> None:
        """Answers a GET."""
        self._answer()

    def do_POST(self) -> None:
        """Answers a POST."""
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        """Keeps no log: it would fill the desktop's memory."""

    def address_string(self) -> str:
        """Returns the name of the other end; a unix socket has none."""
        return "host"

    def _answer(self) -> None:
        try:
            parts = urlsplit(self.path)
            path = parts.path.removeprefix("/setup").strip("/")
            work = answers.ANSWERS.get(path)
            if work is None:
                raise answers.RequestRefused(f"no such request: {path}", 404)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            result = work({**query, **self._content()})
            self._send(200, result)
        except answers.RequestRefused as refused:
            self._send(refused.status, {"status": "error", "message": str(refused)})
        except Exception as fault:  # whatever one request causes, the next one gets an answer
            traceback.print_exc()
            message = f"{type(fault).__name__}: {fault}"
            self._send(500, {"status": "error", "message": message, "error": message})

    def _content(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= LARGEST_REQUEST:
            self.close_connection = True
            raise answers.RequestRefused(f"a request of {length} bytes is too large", 413)
        raw = self.rfile.read(length)
        kind = self.headers.get_content_type()
        if kind == "multipart/form-data":
            return _form(self.headers["Content-Type"], raw)
        if kind == "application/x-www-form-urlencoded":
            return {name: values[0] for name, values in parse_qs(raw.decode()).items()}
        if kind == "application/octet-stream":
            return {"file_data": raw}
        content = json.loads(raw or b"{}")
        if not isinstance(content, dict):
            raise answers.RequestRefused("the request's body is no JSON object", 400)
        return content

    def _send(self, status: int, result: object) -> None:
        kind = "application/json"
        if isinstance(result, bytes):
            body = result
            kind = "image/png" if body.startswith(b"\x89PNG") else "application/octet-stream"
        elif isinstance(result, str):
            body, kind = result.encode("utf-8", "replace"), "text/plain; charset=utf-8"
        else:
            body = json.dumps(result).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class GuestServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A server on an existing listening socket."""

    daemon_threads = True

    def __init__(self, descriptor: int) -> None:
        super().__init__("", GuestRequest, bind_and_activate=False)
        self.socket.close()
        self.socket = socket.socket(fileno=descriptor)

    def get_request(self) -> tuple[socket.socket, str]:
        """Accepts a connection; on a unix socket it has no address."""
        connection, _ = super().get_request()
        return connection, "host"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores a broken connection."""


def _form(kind: str, raw: bytes) -> dict[str, Any]:
    """Returns the fields of a form: text, and files as bytes."""
    message = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + raw)
    fields: dict[str, Any] = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content: Any = part.get_payload(decode=True) or b""
        fields[str(name)] = content if part.get_filename() else content.decode("utf-8", "replace")
    return fields


def forward(descriptor: int, port: int) -> None:
    """Connects every client of a host socket with a port in the desktop."""
    listener = socket.socket(fileno=descriptor)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_join, args=(connection, port), daemon=True).start()


def _join(connection: socket.socket, port: int) -> None:
    with connection, contextlib.suppress(OSError):
        other = socket.create_connection(("127.0.0.1", port), 10)
        other.settimeout(None)
        with other:
            relay.join(connection, other)


def main() -> None:
    server, chromium, vlc = map(int, sys.argv[1:])
    ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0)  # no program may read or write its memory
    for descriptor in (server, chromium, vlc):
        os.set_inheritable(descriptor, False)
    for descriptor, port in ((chromium, 9222), (vlc, 8080)):
        threading.Thread(target=forward, args=(descriptor, port), daemon=True).start()
    answers.await_screen()
    GuestServer(server).serve_forever()


if __name__ == "__main__":
    main()
