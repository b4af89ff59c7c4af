"""A child process at the other end of a channel."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence

from rlanything.engines.channel import Channel
from rlanything.plugins import child_environment

LAST_WORDS = 400
"""Number of characters shown of a dead process's last line."""
LAST_SECONDS = 5.0
"""Time for a process to end after it closed its channel."""


class Child:
    """A process that runs the `main` of a module, the channel to it, and its output.

    `main` gets the file descriptor of its end of the channel in `sys.argv[1]`, followed by
    `descriptors`. The process ends with this object, even if this program ends with an error."""

    def __init__(
        self, module: str, environment: Mapping[str, str], descriptors: Sequence[int] = ()
    ) -> None:
        """`environment`: variables added to, or replacing, those of this process."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the process
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        # Without `-m`, which would name the module `__main__` in pickled classes.
        code = f"from {module} import main; main()"
        with theirs:
            passed = [theirs.fileno(), *descriptors]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code, *map(str, passed)],
                pass_fds=passed,
                env={**os.environ, **child_environment(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
        self.id = self._process.pid
        self.kill = weakref.finalize(self, _end, self._process, self.channel)
        """Ends the process; further calls do nothing."""

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def last_words(self) -> str:
        """Returns its exit status and its last line of output."""
        try:
            status = self._process.wait(LAST_SECONDS)
        except subprocess.TimeoutExpired:
            return "it hung up"
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f"exit status {status}" + (f", {last[:LAST_WORDS]}" if last else "")


def _end(process: subprocess.Popen[bytes], channel: Channel) -> None:
    channel.close()
    process.kill()
    process.wait()
