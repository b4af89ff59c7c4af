"""Runs one program of a file once: `rlanything sandbox`."""

from __future__ import annotations

from pathlib import Path

from rlanything.domains.coding.sandbox.base import Job, Limits, RunResult, SandboxError
from rlanything.domains.coding.sandbox.local import LocalExecutor


def run_file(program: Path, stdin: Path | None, expected: Path | None, limits: Limits) -> RunResult:
    """Runs a program on the content of `stdin`, compared with that of `expected`, and returns the
    result. Raises `SandboxError` for a file that cannot be read, `SandboxUnavailable` without a
    box."""
    job = Job(
        _text(program, "the program"),
        _bytes(stdin, "--input") if stdin else b"",
        _text(expected, "--expect") if expected else None,
        limits=limits,
    )
    with LocalExecutor(1) as executor:
        return executor.run(job)


def _bytes(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SandboxError(
            f"{path}: {error.strerror}; {what} must be a file that can be read"
        ) from None


def _text(path: Path, what: str) -> str:
    try:
        return _bytes(path, what).decode()
    except UnicodeDecodeError as error:
        raise SandboxError(f"{path}: not UTF-8 at byte {error.start}; {what} must be") from None
