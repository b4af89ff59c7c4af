"""The terms of a sandbox: jobs and limits, verdicts and results, and the executor protocol."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


class SandboxError(ValueError):
    """A request that a sandbox cannot carry out; one line that names place and remedy."""


class SandboxUnavailable(SandboxError):
    """A machine on which programs cannot be contained; one line that says what to install or
    enable."""


class Verdict(StrEnum):
    """The verdict on one run of a program."""

    OK = "ok"
    """It ended cleanly, and printed what was expected where something was."""
    WRONG = "wrong"
    """It ended cleanly and printed something else."""
    ERROR = "error"
    """It ended with another exit status than 0, or by a signal."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output limit"
    BROKEN = "broken"
    """The executor failed, not the program: nothing is known about it. No program can bring it
    about: one under which boxes die or a server fails, where another program then runs, has
    failed."""


MOST = {
    "cpu_seconds": 3600.0,
    "wall_seconds": 86_400.0,
    "memory_mb": 2**24,
    "output_bytes": 2**31,
    "threads": 2**15,
}
"""The most that a limit may be: beyond it the kernel's own numbers end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run."""

    cpu_seconds: float = 4.0
    wall_seconds: float | None = None
    """None: 2.5 times the CPU seconds and 1 more, so that others' work fails no program
    on a machine that runs no more than twice as many as it has cores."""
    memory_mb: int = 1024
    """Address space, in MiB, the interpreter's own 40 or so included."""
    output_bytes: int = 8 * 2**20
    """Most bytes of stdout, and of stderr."""
    threads: int = 32
    """Most threads at once, the main thread included."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not 0 < value <= MOST[name]:
                said = f"{name} is {reprlib.repr(value)}"
                raise SandboxError(f"{said}: a limit is a positive number, {MOST[name]:g} at most")

    @property
    def wall(self) -> float:
        """Wall-clock seconds, with the default filled in."""
        return self.wall_seconds or 2.5 * self.cpu_seconds + 1


DEFAULT_LIMITS = Limits()
TOLERANCE = 1e-6
"""Default tolerance of printed numbers, as contests have it."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one program."""

    program: str
    """Python source."""
    stdin: str | bytes = b""
    expected: str | None = None
    """The expected stdout, compared token by token; None: any output will do."""
    tolerance: float = TOLERANCE
    """Largest difference from an expected number with a point or an exponent, absolute or relative
    to it; whole numbers must be equal. 0: all tokens must be equal."""
    limits: Limits = DEFAULT_LIMITS
    kept_bytes: int | None = None
    """Number of bytes at the beginning of stdout that the result keeps; None: all."""


CONTROL = Job("print(6 * 7)", expected="42", limits=Limits(cpu_seconds=2.0))
"""A run that tells a program's fault from the executor's."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a job."""

    verdict: Verdict
    stdout: bytes = b""
    """The beginning of stdout, or all of it up to the limit, also where the program failed."""
    stderr: str = ""
    """The last few kilobytes of stderr."""
    seconds: float = 0.0
    """Wall-clock time of the program."""
    peak_memory_mb: float | None = None
    """Peak resident memory in MiB; None: the executor cannot tell."""
    reason: str = ""
    """The reason, where the verdict alone does not say it."""
    digest: str = ""
    """Digest of all of stdout, white space apart, of a program that ended cleanly and of which the
    job keeps a beginning; else ""."""

    @property
    def text(self) -> str:
        """stdout as text."""
        return self.stdout.decode("utf-8", "replace")

    def line(self) -> str:
        """Returns the verdict in one line of plain words."""
        memory = "" if self.peak_memory_mb is None else f", {self.peak_memory_mb:.0f} MiB"
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.verdict}{reason}: {self.seconds:.2f} s{memory}"

    def to_json(self) -> dict[str, Any]:
        """Returns the result as `--json` prints it."""
        return {
            "verdict": str(self.verdict),
            "reason": self.reason,
            "stdout": self.text,
            "stderr": self.stderr,
            "seconds": self.seconds,
            "peak_memory_mb": self.peak_memory_mb,
        }


class Executor(Protocol):
    """Runs untrusted programs."""

    def run(self, job: Job) -> RunResult:
        """Runs one job; may be called from several threads. Raises `SandboxUnavailable`."""
        ...

    def run_all(self, jobs: Sequence[Job]) -> list[RunResult]:
        """Returns the results in the order of the jobs, as many at once as the executor allows."""
        ...

    def close(self) -> None:
        """Ends the processes and threads that it holds."""
        ...
