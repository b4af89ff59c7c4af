"""Joins sockets; the desktop, its evaluators and the host all use this file."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading


class Relay:
    """A port on 127.0.0.1 that reaches a unix socket, open until `close`."""

    def __init__(self, path: str) -> None:
        class _Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.socket(socket.AF_UNIX) as other, contextlib.suppress(OSError):
                    other.connect(path)
                    join(self.request, other)

        class _Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._server = _Server(("127.0.0.1", 0), _Handler)
        self.port: int = self._server.server_address[1]
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()

    def close(self) -> None:
        """Stops listening; connections end with the desktop."""
        self._server.shutdown()
        self._server.server_close()


def join(one: socket.socket, other: socket.socket) -> None:
    """Copies data in both directions until both sides have ended."""
    back = threading.Thread(target=_pump, args=(other, one), daemon=True)
    back.start()
    _pump(one, other)
    back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
