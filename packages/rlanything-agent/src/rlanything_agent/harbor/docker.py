"""Containers of docker or podman, for tasks whose image a box cannot stand in for."""

from __future__ import annotations

import functools
import hashlib
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rlanything_agent.harbor.container import (
    SHOWN_BYTES,
    ContainerFault,
    Ran,
    Tested,
    read_rewards,
)
from rlanything_agent.harbor.dockerfile import NotPlain
from rlanything_agent.harbor.folder import HarborTask
from rlanything_agent.harbor.supervisor import CHUNK, Output

Program = Literal["docker", "podman"]
_ASK_SECONDS = 10.0
_MANAGE_SECONDS = 60.0
_GRACE_SECONDS = 10.0
_KEEP = ("sh", "-c", "sleep infinity")
_LABEL = "rlanything-harbor"
"""Label of every container: a worker that is killed leaves its own behind."""
_LATE = 137
"""Exit code of `timeout -s KILL` at the limit."""


@functools.cache
def container_program() -> Program | None:
    """Returns docker or podman, whichever answers; None if neither does."""
    for program in ("docker", "podman"):
        if shutil.which(program) is None:
            continue
        try:
            asked = subprocess.run([program, "info"], capture_output=True, timeout=_ASK_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if asked.returncode == 0:
            return program
    return None


class DockerContainer:
    """A container in docker or podman."""

    def __init__(self, program: Program, task: HarborTask, seconds: float) -> None:
        """Raises `NotPlain` if its image cannot be made or started."""
        self._program = program
        self._task = task
        image = task.docker_image or self._built(seconds)
        options = ["--label", _LABEL, "--memory", f"{task.memory_mb}m", "--pids-limit", "1024"]
        options += ["--cpus", f"{task.cpus:g}"] if task.cpus else []
        options += [] if task.network else ["--network", "none"]
        options += ["-w", task.workdir] if task.workdir is not None else []
        for name, value in task.variables.items():
            options += ["-e", f"{name}={value}"]
        started = self._call(["run", "-d", *options, image, *_KEEP], seconds)
        if started.returncode:
            raise NotPlain(f"{program} run {image}: {_said(started)}")
        self._id = started.stdout.decode().strip()

    @property
    def folder(self) -> str:
        asked = self._call(["exec", self._id, "pwd"], _MANAGE_SECONDS)
        return asked.stdout.decode("utf-8", "replace").strip() or "/"

    def run(self, command: str, seconds: float) -> Ran:
        return self._exec(command, seconds, [])

    def test(self, seconds: float) -> Tested:
        # A restart ends every process and keeps the files.
        self._manage(["restart", "-t", "0", self._id])
        self._manage(["exec", self._id, "rm", "-rf", "/tests", "/logs/verifier"])
        self._manage(["exec", self._id, "mkdir", "-p", "/logs/verifier"])
        self._manage(["cp", str(self._task.tests), f"{self._id}:/tests"])
        variables = [
            word
            for name, value in self._task.tests_variables.items()
            for word in ("-e", f"{name}={value}")
        ]
        ran = self._exec("exec bash /tests/test.sh", seconds, variables)
        with tempfile.TemporaryDirectory(prefix="harbor-") as folder:
            logs = Path(folder, "verifier")
            copied = self._call(["cp", f"{self._id}:/logs/verifier", str(logs)], _MANAGE_SECONDS)
            return Tested(None if copied.returncode else read_rewards(logs), ran)

    def close(self) -> None:
        self._call(["rm", "-f", self._id], _MANAGE_SECONDS)

    def _exec(self, command: str, seconds: float, options: Sequence[str]) -> Ran:
        # By standard input, because one word of a command line has at most 128 KiB.
        reading = "cat >/tmp/.command && exec bash /tmp/.command </dev/null 2>&1"
        limit = ["timeout", "-s", "KILL", f"{seconds:g}"]
        words = ["exec", "-i", *options, self._id, *limit, "bash", "-c", reading]
        begun = time.monotonic()
        given = command.encode("utf-8", "surrogateescape")
        status, output = self._streamed(words, seconds + _GRACE_SECONDS, given)
        spent = time.monotonic() - begun
        late = status == _LATE and spent >= seconds
        return Ran(status, output, min(spent, seconds), late)

    def _built(self, seconds: float) -> str:
        name = hashlib.sha256(str(self._task.folder).encode()).hexdigest()[:16]
        tag = f"rlanything-harbor:{name}"
        ended = self._call(["build", "-q", "-t", tag, str(self._task.context)], seconds)
        if ended.returncode:
            raise NotPlain(f"{self._program} build: {_said(ended)}")
        return tag

    def _manage(self, words: Sequence[str]) -> None:
        ended = self._call(words, _MANAGE_SECONDS)
        if ended.returncode:
            raise ContainerFault(f"{self._program} {words[0]}: {_said(ended)}")

    def _streamed(self, words: Sequence[str], seconds: float, given: bytes) -> tuple[int, str]:
        """Returns the exit code and the output of a command, whose middle is left out if it is
        long: an output may be larger than memory. Raises `ContainerFault` if it hangs."""
        output, deadline = Output(SHOWN_BYTES), time.monotonic() + seconds
        with tempfile.TemporaryFile() as script:
            script.write(given)
            script.seek(0)
            try:
                process = subprocess.Popen(
                    [self._program, *words],
                    stdin=script,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                )
            except OSError as error:
                raise ContainerFault(f"{self._program} {words[0]}: {error}") from error
        with process:
            assert process.stdout is not None
            try:
                while (left := deadline - time.monotonic()) > 0:
                    if select.select([process.stdout], [], [], left)[0]:
                        chunk = process.stdout.read(CHUNK)
                        if not chunk:
                            return process.wait(), output.kept().decode("utf-8", "replace")
                        output.add(chunk)
            finally:
                process.kill()  # if it hangs, or this program is interrupted
        raise ContainerFault(f"{self._program} {words[0]}: no end after {seconds:g} s")

    def _call(self, words: Sequence[str], seconds: float) -> subprocess.CompletedProcess[bytes]:
        """Returns how a call of the program ended. Raises `ContainerFault` if it hangs."""
        try:
            return subprocess.run([self._program, *words], capture_output=True, timeout=seconds)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ContainerFault(f"{self._program} {words[0]}: {error}") from error


def _said(ended: subprocess.CompletedProcess[bytes]) -> str:
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"{lines[-1]:.160}" if lines else f"it ended with {ended.returncode}"
