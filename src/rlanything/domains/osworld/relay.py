"""A TCP port of this machine that reaches a unix socket."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading


class Relay:
    """A port on 127.0.0.1, open until `close`."""

    def __init__(self, path: str) -> None:
        class _Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.socket(socket.AF_UNIX) as other, contextlib.suppress(OSError):
                    other.connect(path)
                    back = threading.Thread(target=_pump, args=(other, self.request), daemon=True)
                    back.start()
                    _pump(self.request, other)
                    back.join()

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


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
