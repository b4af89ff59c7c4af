"""The first process of a box: a port on 127.0.0.1 that reaches the endpoint, and the command.

    python relay.py SOCKET PORT READY LIMITS COMMAND...

Stands alone: it runs isolated, and imports nothing of the library. READY: a descriptor to which it
writes a byte before the command begins; LIMITS: JSON, resource limits by their names.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import threading


def main() -> None:
    path, port, ready, limits, *command = sys.argv[1:]
    os.setsid()  # a command that signals its group would reach bwrap
    for name, limit in json.loads(limits).items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=128)
    threading.Thread(target=accept, args=(listener, path), daemon=True).start()
    os.write(int(ready), b"1")
    os.close(int(ready))
    try:
        status = subprocess.run(command).returncode
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
    # All else in the box ends with this process.
    os._exit(status if status >= 0 else 128 - status)


def accept(listener: socket.socket, path: str) -> None:
    """Joins every connection to one of its own at the endpoint."""
    while True:
        one, _ = listener.accept()
        other = socket.socket(socket.AF_UNIX)
        try:
            other.connect(path)
        except OSError:  # the endpoint is gone
            one.close()
            continue
        for pair in ((one, other), (other, one)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def pump(source: socket.socket, target: socket.socket) -> None:
    """Passes on what one says to the other, until it has ended."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
