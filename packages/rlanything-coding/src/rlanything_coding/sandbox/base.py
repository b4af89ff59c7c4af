"""The terms of a sandbox: jobs and limits, verdicts and results, and the executor protocol."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


class SandboxError(ValueError):
    """A request that a sandbox cannot carry out; one line with place and remedy."""


class SandboxUnavailable(SandboxError):
    """Error if programs cannot be contained on this machine; one line that says what to install or
    enable."""


class Verdict(StrEnum):
    """The verdict on one run of a program."""

    OK = "ok"
    """It ended cleanly, and printed the expected output if there is one."""
    WRONG = "wrong"
    """It ended cleanly but printed something else."""
    ERROR = "error"
    """It ended with a nonzero exit status, or by a signal."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output limit"
    BROKEN = "broken"
    """The executor failed, not the program: nothing is known about the program. No program can
    cause this verdict. If boxes die or a server fails with it while another program runs, the
    program has failed."""


MOST = {
    "cpu_seconds": 3600.0,
    "wall_seconds": 86_400.0,
    "memory_mb": 2**24,
    "output_bytes": 2**31,
    "threads": 2**15,
}
"""Largest value of each limit; the kernel's own numbers overflow beyond it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run."""

    cpu_seconds: float = 4.0
    wall_seconds: float | None = None
    """None: 2.5 times the CPU seconds plus 1, so that other work on the machine fails no program as
    long as at most twice as many programs as cores are running."""
    memory_mb: int = 1024
    """Address space in MiB, including about 40 for the interpreter."""
    output_bytes: int = 8 * 2**20
    """Largest size in bytes of stdout, and of stderr."""
    threads: int = 32
    """Largest number of threads at once, including the main thread."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not 0 < value <= MOST[name]:
                said = f"{name} is {reprlib.repr(value)}"
                raise SandboxError(f"{said}: a limit is a positive number, {MOST[name]:g} at most")

    @property
    def wall(self) -> float:
        """Wall-clock limit in seconds, with the default filled in."""
        return self.wall_seconds or 2.5 * self.cpu_seconds + 1


DEFAULT_LIMITS = Limits()
TOLERANCE = 1e-6
"""Default tolerance for printed numbers, as in programming contests."""


@dataclass(frozen=True, slots=True)
class Grading:
    """Rules for comparing an output with the expected one, token by token."""

    tolerance: float = TOLERANCE
    """Largest absolute or relative difference from an expected number with a point or an exponent;
    whole numbers must be equal. 0: all tokens must be equal."""
    real_numbers: bool = False
    """Whether an expected whole number is a rounded one: it also matches a number with a point or
    an exponent within the tolerance."""
    ignore_case: bool = False


DEFAULT_GRADING = Grading()
EXACT = Grading(0.0)


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one program."""

    program: str
    """Python source code."""
    stdin: str | bytes = b""
    expected: str | None = None
    """The expected stdout, compared token by token; None accepts any output."""
    grading: Grading = DEFAULT_GRADING
    limits: Limits = DEFAULT_LIMITS
    kept_bytes: int | None = None
    """Bytes of stdout, from its beginning, that the result keeps; None: all."""


CONTROL = Job("print(6 * 7)", expected="42", limits=Limits(cpu_seconds=2.0))
"""A trial run that distinguishes a program's fault from the executor's."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a job."""

    verdict: Verdict
    stdout: bytes = b""
    """The beginning of stdout, or all of it up to the limit, even if the program failed."""
    stderr: str = ""
    """The last few kilobytes of stderr."""
    seconds: float = 0.0
    """Wall-clock time of the program."""
    peak_memory_mb: float | None = None
    """Peak resident memory in MiB; None if the executor cannot measure it."""
    reason: str = ""
    """Explanation, if the verdict alone is not enough."""
    digest: str = ""
    """Digest of the whole stdout, ignoring white space. Set if the program ended cleanly and the
    job keeps only the beginning of its output; else ""."""

    @property
    def text(self) -> str:
        """stdout as text."""
        return self.stdout.decode("utf-8", "replace")

    def line(self) -> str:
        """Returns the verdict in one plain line."""
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
        """Runs one job; callable from several threads. Raises `SandboxUnavailable`."""
        ...

    def run_all(self, jobs: Sequence[Job]) -> list[RunResult]:
        """Returns the results in the order of the jobs, run in parallel as far as the executor
        allows."""
        ...

    def close(self) -> None:
        """Ends its processes and threads."""
        ...
