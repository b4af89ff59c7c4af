"""One box: the processes around a zygote, and the socket to it."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rlanything_coding.sandbox.base import Job, Limits, SandboxUnavailable
from rlanything_coding.sandbox.interpreter import PACKAGES, interpreter
from rlanything_coding.sandbox.launch import box_command
from rlanything_coding.sandbox.seccomp import compile_filter
from rlanything_coding.sandbox.zygote import REPLY, REQUEST
from rlanything_sandbox.bubblewrap import BoxProcess

START_SECONDS = 60.0
GRACE_SECONDS = 4.0
"""Seconds beyond a run's limit within which the box must report."""
CLOSE_SECONDS = 2.0
"""Seconds to wait until a box ends by itself, and then until it is gone after being killed."""


class BoxDied(Exception):
    """A box that ended or hung; it must be replaced."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run, as the kernel reports it."""

    status: int
    """Exit status of the process; negative for a signal, as in `subprocess`."""
    exceeded: str
    """Limit at which the box ended the run, "cpu" or "wall"; "" for none."""
    seconds: float
    cpu_seconds: float
    peak_memory_mb: float
    stdout: bytes
    stdout_bytes: int
    stderr: bytes
    stderr_bytes: int


class Box:
    """A box, started by its constructor. It ends with the thread that created it.

    Raises `SandboxUnavailable` with the reason if it cannot start."""

    def __init__(self, imports: Sequence[str], packages: Sequence[str]) -> None:
        self._box = BoxProcess(lambda fd: box_command(interpreter(tuple(packages)), fd))
        self._channel = self._box.channel
        config = {
            "filter": compile_filter().hex(),
            "imports": list(imports),
            "path": [str(PACKAGES)] if packages else [],
        }
        if fault := self._box.fault(START_SECONDS, json.dumps(config).encode()):
            raise SandboxUnavailable(fault)

    @property
    def pid(self) -> int:
        """The outermost process of the box; its id is also that of its process group."""
        return self._box.process.pid

    def run(self, job: Job, most_seconds: float) -> Ended:
        """Runs a job in the box, which must answer within `most_seconds` and soon after the job's
        own limit. Raises `BoxDied`."""
        program = job.program.encode("utf-8", "surrogatepass")
        stdin = job.stdin
        if isinstance(stdin, str):
            stdin = stdin.encode("utf-8", "surrogatepass")
        files = [os.memfd_create(name) for name in ("program", "stdin", "stdout", "stderr")]
        try:
            _write(files[0], program)
            _write(files[1], stdin)
            reply = self._ask(job.limits, files, most_seconds)
            status, exceeded, seconds, cpu_seconds, kilobytes = REPLY.unpack(reply)
            limit = job.limits.output_bytes
            sizes = [os.fstat(file).st_size for file in files[2:]]
            return Ended(
                status=os.waitstatus_to_exitcode(status),
                exceeded=("", "cpu", "wall")[exceeded],
                seconds=seconds,
                cpu_seconds=cpu_seconds,
                peak_memory_mb=kilobytes / 1024,
                stdout=os.pread(files[2], limit, 0),
                stdout_bytes=sizes[0],
                stderr=os.pread(files[3], 4096, max(0, sizes[1] - 4096)),
                stderr_bytes=sizes[1],
            )
        finally:
            for file in files:
                os.close(file)

    def _ask(self, limits: Limits, files: list[int], most_seconds: float) -> bytes:
        request = REQUEST.pack(
            limits.cpu_seconds,
            limits.wall,
            limits.memory_mb * 2**20,
            limits.output_bytes,
            limits.threads,
            math.ceil(limits.cpu_seconds) + 1,
        )
        seconds = min(limits.wall + GRACE_SECONDS, most_seconds)
        self._channel.settimeout(seconds)
        try:
            socket.send_fds(self._channel, [request], files)
            reply = self._channel.recv(REPLY.size)
        except TimeoutError as error:
            raise BoxDied(f"no answer within {seconds:.0f} s") from error
        except OSError as error:
            raise BoxDied(str(error)) from error
        if len(reply) != REPLY.size:
            raise BoxDied("it ended")
        return reply

    def close(self, at_once: bool = False) -> None:
        """Ends every process of the box; `at_once` does not wait for it to end by itself."""
        self._channel.close()  # this ends the zygote, and then the others
        deadline = time.monotonic() + (0 if at_once else CLOSE_SECONDS)
        # Not reaped yet: until then the process group id cannot be reused.
        while (
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
            and time.monotonic() < deadline
        ):
            time.sleep(0.002)
        self._box.kill(CLOSE_SECONDS)


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
    os.lseek(file, 0, os.SEEK_SET)
