"""The first process of a box: a port on 127.0.0.1 that reaches the endpoint, and the command.

    python relay.py SOCKET PORT READY LIMITS CHECK COMMAND...

Stands alone: it runs isolated, and imports nothing of the library. READY: a descriptor to which it
writes a byte before the command begins; LIMITS: JSON, resource limits by their names; CHECK: JSON,
the words of a command whose output and exit code count in place of COMMAND's, or an empty list.
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
from typing import Any

DUMPABLE = 4
"""Option of `prctl`."""


def main() -> None:
    path, port, ready, limits, checking, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0)  # no other process may read or write its memory
    os.setsid()  # a command that signals its group would reach bwrap
    for name, limit in json.loads(limits).items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=128)
    threading.Thread(target=accept, args=(listener, path), daemon=True).start()
    os.write(int(ready), b"1")
    os.close(int(ready))
    if check := json.loads(checking):
        # The command and what it starts have the descriptors of neither the task nor the outcome.
        task = sys.stdin.buffer.read()
        run(command, task, stdout=2)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(-1, signal.SIGKILL)
            while True:  # until there is no child left: all in the box are this process's
                os.wait()
        # Nothing of what the command left in its home is imported.
        status = run(check, task, env={**os.environ, "HOME": "/"})
    else:
        status = run(command)
    # All else in the box ends with this process.
    os._exit(status if status >= 0 else 128 - status)


def run(command: list[str], given: bytes | None = None, **options: Any) -> int:
    """Returns the exit code of a command, and reaps whatever else ends meanwhile. `given`: its
    standard input."""
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
    with contextlib.suppress(OSError), target:  # it need not read it
        target.write(given)


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
