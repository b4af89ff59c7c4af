"""A program of another Python, which answers each line of JSON with one line."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

LAST_BYTES = 1 << 16
"""Bytes of a program's error output that are read, from its end."""


class LineProgram:
    """A running program, in its own session. `environment`: all its variables."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        # Not a pipe: nobody would read it while the program works.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> bool:
        """Whether the program has ended by itself."""
        return self._process.poll() is not None

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Returns the answer to a request. Raises `OSError` or `ValueError` if there is none in
        time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(request)}\n".encode())
        self._process.stdin.flush()
        return self.answer(seconds)

    def answer(self, seconds: float) -> dict[str, Any]:
        """Returns the next answer, like `ask`."""
        assert self._process.stdout is not None
        answer = json.loads(_line(self._process.stdout.fileno(), time.monotonic() + seconds))
        if not isinstance(answer, dict):
            raise ValueError(answer)
        return answer

    def last_words(self) -> str:
        """Ends the program, and returns the end of its error output."""
        self._kill()
        self._complaints.seek(-min(self._complaints.seek(0, os.SEEK_END), LAST_BYTES), os.SEEK_END)
        said = self._complaints.read().decode("utf-8", "replace")
        self.close()
        return said

    def close(self, seconds: float = 0.0) -> None:
        """Ends the program; it has `seconds` to notice that its input is closed."""
        if self._process.stdin is not None:
            # Unwritten data may be left in the buffer.
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._complaints.close()

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def last_line(said: str) -> str:
    """Returns the last line of a program's error output."""
    return (said.strip().splitlines() or ["it says nothing"])[-1][:300]


def _line(stream: int, deadline: float) -> bytes:
    said = b""
    while not said.endswith(b"\n"):
        if not select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        data = os.read(stream, 65536)
        if not data:
            raise OSError("the process ended")
        said += data
    return said
