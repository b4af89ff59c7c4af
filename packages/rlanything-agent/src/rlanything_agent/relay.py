"""The first process of a box: a port on 127.0.0.1 that reaches the endpoint, and the command.

    python relay.py SOCKET PORT READY LIMITS CHECK COMMAND...

Standalone: it runs isolated and imports nothing from the library. READY: a descriptor to which it
writes a byte before the command begins. LIMITS: JSON, resource limits by name. CHECK: JSON, a
command line whose output and exit code replace COMMAND's, or an empty list.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

DUMPABLE = 4
"""Option of `prctl`."""


def main() -> None:
    path, port, ready, limits, checking, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0)  # no other process may read or write its memory
    os.setsid()  # otherwise a command that signals its group would reach bwrap
    for name, limit in json.loads(limits).items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=128)
    threading.Thread(target=accept, args=(listener, path), daemon=True).start()
    os.write(int(ready), b"1")
    os.close(int(ready))
    if check := json.loads(checking):
        # The command and its children inherit neither the task's nor the outcome's descriptor.
        task = sys.stdin.buffer.read()
        run(command, task, stdout=2)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(-1, signal.SIGKILL)
            # until no child is left: every process in the box is a descendant of this one
            while True:
                os.wait()
        # Use another home: nothing that the command left in its home must be imported.
        status = run(check, task, env={**os.environ, "HOME": "/"})
    else:
        status = run(command)
    # Everything else in the box ends with this process.
    os._exit(status if status >= 0 else 128 - status)


def run(command: list[str], given: bytes | None = None, **options: Any) -> int:
    """Returns the exit code of a command, and reaps any other process that ends meanwhile. `given`:
    the command's standard input."""
    source = None if given is None else subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=source, **options)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
    if given is not None:
        threading.Thread(target=feed, args=(process.stdin, given), daemon=True).start()
    while True:
        ended, status = os.wait()
        if ended == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode


def feed(target: Any, given: bytes) -> None:
    with contextlib.suppress(OSError), target:  # the command need not read its input
        target.write(given)


def accept(listener: socket.socket, path: str) -> None:
    """Connects every incoming connection to the endpoint."""
    while True:
        pair: list[socket.socket] = []
        try:
            pair.append(listener.accept()[0])
            pair.append(socket.socket(socket.AF_UNIX))
            pair[1].connect(path)
            for ends in (pair, pair[::-1]):
                threading.Thread(target=pump, args=ends, daemon=True).start()
        except (OSError, RuntimeError):  # the endpoint is gone, or there are too many at once
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
            time.sleep(0.05)


def pump(source: socket.socket, target: socket.socket) -> None:
    """Copies data from one connection to the other until it ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
