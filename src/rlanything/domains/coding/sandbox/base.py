"""What an executor is asked and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


class SandboxError(ValueError):
    """What was asked of a sandbox cannot be done; one line that names place and remedy."""


class SandboxUnavailable(SandboxError):
    """Programs cannot be contained here; one line that says what to install or enable."""


class Verdict(StrEnum):
    """What became of a program."""

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
    """The executor failed, not the program: nothing is known about it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use."""

    cpu_seconds: float = 4.0
    wall_seconds: float | None = None
    """None: 2.5 times the CPU seconds and 1 more, so that a busy machine fails no program."""
    memory_mb: int = 1024
    """Address space, in MiB, the interpreter's own 40 or so included."""
    output_bytes: int = 8 * 2**20
    """Of stdout, and of stderr."""
    threads: int = 32
    """At once, the main thread included."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value}: a limit is a positive number")

    @property
    def wall(self) -> float:
        """Wall-clock seconds, decided."""
        return self.wall_seconds or 2.5 * self.cpu_seconds + 1


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one program."""

    program: str
    """Python source."""
    stdin: str | bytes = b""
    expected: str | None = None
    """What stdout must say, token by token; None: any output is well."""
    tolerance: float | None = None
    """How far numbers may lie apart, absolutely or relatively; None: not at all."""
    limits: Limits = DEFAULT_LIMITS


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a job."""

    verdict: Verdict
    stdout: bytes = b""
    """All of it, up to the limit, also where the program failed."""
    stderr: str = ""
    """Its last few kilobytes."""
    seconds: float = 0.0
    """Wall-clock time of the program."""
    peak_memory_mb: float | None = None
    """Resident, in MiB; None: the executor cannot tell."""
    reason: str = ""
    """Why, where the verdict alone does not say."""

    @property
    def text(self) -> str:
        """stdout as text."""
        return self.stdout.decode("utf-8", "replace")

    def line(self) -> str:
        """The verdict in plain words."""
        memory = "" if self.peak_memory_mb is None else f", {self.peak_memory_mb:.0f} MiB"
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.verdict}{reason}: {self.seconds:.2f} s{memory}"

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": str(self.verdict),
            "reason": self.reason,
            "stdout": self.text,
            "stderr": self.stderr,
            "seconds": self.seconds,
            "peak_memory_mb": self.peak_memory_mb,
        }


class Executor(Protocol):
    """Runs programs that nobody vouches for."""

    def run(self, job: Job) -> RunResult:
        """May be called from several threads. Raises `SandboxUnavailable`."""
        ...

    def run_all(self, jobs: Sequence[Job]) -> list[RunResult]:
        """Results in the order of the jobs, as many at once as the executor allows."""
        ...

    def close(self) -> None:
        """Ends what it holds."""
        ...
