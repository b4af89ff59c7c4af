"""The first process of a box: runs commands one at a time, as `docker exec` does in a container.

    python supervisor.py CHANNEL LIMITS LINKED

Standalone: it runs isolated and imports nothing from the library. CHANNEL: a socket that brings
requests, each as JSON with two files, the script and an empty one for its output. LIMITS: JSON,
resource limits by name. LINKED: JSON, folders of programs to fill, each as [system, added, folder].
What a command starts in the background lives on until the box ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any

TICK_SECONDS = 0.02
CHUNK = 65536
DUMPABLE = 4
"""Option of `prctl`."""


class Output:
    """The beginning and the end of a command's output."""

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._head = b""
        self._tail = b""
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail = (self._tail + data[room:])[-self._half :]

    def kept(self) -> bytes:
        """Returns the output, with a line in place of what is left out."""
        left_out = self.size - len(self._head) - len(self._tail)
        mark = b"\n[... %d bytes left out ...]\n" % left_out if left_out else b""
        return self._head + mark + self._tail


def main() -> None:
    ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0)  # no command may take the channel from here
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.setsid()  # otherwise a command that signals its group would reach bwrap
    for name, limit in json.loads(sys.argv[2]).items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    for system, added, folder in json.loads(sys.argv[3]):
        fill(system, added, folder)
    watched = selectors.DefaultSelector()
    watched.register(channel, selectors.EVENT_READ)
    channel.send(b"ready")
    while True:
        for key, _ in watched.select():
            if key.fileobj is not channel:
                drain(watched, key.fd, None)
                continue
            request, files, _, _ = socket.recv_fds(channel, CHUNK, 2)
            if not request:
                os._exit(0)  # everything else in the box ends with this process
            reply = run(watched, json.loads(request), *files)
            for file in files:
                os.close(file)
            channel.send(json.dumps(reply).encode())


def fill(system: str, added: str, folder: str) -> None:
    """Fills a folder with links to the system's programs, then with copies of added ones, which
    replace none."""
    names = set(os.listdir(system))
    for name in names:
        os.symlink(f"{system}/{name}", f"{folder}/{name}")
    for entry in os.scandir(added) if os.path.isdir(added) else ():
        if entry.name not in names and (entry.is_symlink() or entry.is_file()):
            shutil.copy2(entry.path, f"{folder}/{entry.name}", follow_symlinks=False)


def run(
    watched: selectors.BaseSelector, wanted: dict[str, Any], script: int, result: int
) -> dict[str, Any]:
    """Returns how a command ended, after writing its output to `result`."""
    output = Output(wanted["output_bytes"])
    begun = time.monotonic()
    readable, writable = os.pipe()
    folder = wanted["folder"] if os.path.isdir(wanted["folder"]) else "/"
    process = subprocess.Popen(
        ["/bin/bash", f"/dev/fd/{script}"],
        stdin=subprocess.DEVNULL,
        stdout=writable,
        stderr=writable,
        cwd=folder,
        pass_fds=[script],
        start_new_session=True,
    )
    os.close(writable)
    os.set_blocking(readable, False)
    watched.register(readable, selectors.EVENT_READ)
    status = None
    late = False
    while status is None:
        for key, _ in watched.select(TICK_SECONDS):
            if isinstance(key.fileobj, int):  # all but the channel
                drain(watched, key.fd, output if key.fd == readable else None)
        status = reaped(process)
        if status is None and not late and time.monotonic() - begun > wanted["seconds"]:
            late = True
            os.killpg(process.pid, signal.SIGKILL)
    drain(watched, readable, output)
    os.write(result, output.kept())
    return {"status": status, "late": late, "seconds": time.monotonic() - begun}


def drain(watched: selectors.BaseSelector, pipe: int, output: Output | None) -> None:
    """Reads what is in a pipe, so that no process waits for a reader, and closes it at its end."""
    try:
        for _ in range(64):
            data = os.read(pipe, CHUNK)
            if not data:
                watched.unregister(pipe)
                os.close(pipe)
                return
            if output is not None:
                output.add(data)
    except OSError:
        return


def reaped(process: subprocess.Popen[bytes]) -> int | None:
    """Returns the exit code of a command, and reaps any other process that ended; None while it
    runs."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended == 0:
            return None
        if ended == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode


if __name__ == "__main__":
    main()
