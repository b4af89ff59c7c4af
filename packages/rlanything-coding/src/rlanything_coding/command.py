"""`rlanything sandbox`: runs one program from a file in a sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlanything.terminal import write, write_json, write_line

if TYPE_CHECKING:
    from rlanything_coding.sandbox.base import Limits, RunResult


def sandbox(
    program: Annotated[Path, typer.Argument(help="A file of Python that need not be trusted.")],
    input: Annotated[Path | None, typer.Option(help="File with the program's stdin.")] = None,
    expect: Annotated[Path | None, typer.Option(help="File with the expected output.")] = None,
    cpu_seconds: Annotated[
        float, typer.Option(min=0.01, help="CPU time; 2.5 times that and 1 s by the clock.")
    ] = 4.0,
    memory_mb: Annotated[int, typer.Option(min=1, help="Address space, in MiB.")] = 1024,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Run a program in a box that is isolated from this machine, and print its verdict."""
    from rlanything_coding.sandbox.base import Limits

    limits = Limits(cpu_seconds=cpu_seconds, memory_mb=memory_mb)
    result = _run_file(program, input, expect, limits)
    if as_json:
        write_json(result.to_json())
    else:
        write(result.text)
        write_line(result.line(), stderr=True)


def _run_file(
    program: Path, stdin: Path | None, expected: Path | None, limits: Limits
) -> RunResult:
    """Returns the result of the run. Raises `SandboxError` for a file that cannot be read, and
    `SandboxUnavailable` without a box."""
    from rlanything_coding.sandbox.base import Job
    from rlanything_coding.sandbox.local import LocalExecutor

    job = Job(
        _text(program, "the program"),
        _bytes(stdin, "--input") if stdin else b"",
        _text(expected, "--expect") if expected else None,
        limits=limits,
    )
    with LocalExecutor(1) as executor:
        return executor.run(job)


def _bytes(path: Path, what: str) -> bytes:
    from rlanything_coding.sandbox.base import SandboxError

    try:
        return path.read_bytes()
    except OSError as error:
        raise SandboxError(
            f"{path}: {error.strerror}; {what} must be a file that can be read"
        ) from None


def _text(path: Path, what: str) -> str:
    from rlanything_coding.sandbox.base import SandboxError

    try:
        return _bytes(path, what).decode()
    except UnicodeDecodeError as error:
        raise SandboxError(f"{path}: not UTF-8 at byte {error.start}; {what} must be") from None
