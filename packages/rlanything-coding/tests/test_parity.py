"""A program that means no harm cannot tell a box from plain CPython."""

from __future__ import annotations

import subprocess
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers.benign import Program, programs
from rlanything_coding.sandbox.base import Job, Limits, RunResult, Verdict
from rlanything_coding.sandbox.local import LocalExecutor

PROGRAMS = list(programs())
LIMITS = Limits(cpu_seconds=10, wall_seconds=60)


def plain(folder: Path, number: int, program: Program) -> tuple[bytes, int]:
    """What `python -I` prints where no package is installed, and its exit status."""
    _, source, stdin = program
    place = folder / str(number)
    place.mkdir()
    (place / "stdin").write_bytes(stdin)
    (place / "program.py").write_bytes(source.encode("utf-8", "surrogatepass"))
    with open(place / "stdin", "rb") as read, open(place / "stdout", "w+b") as out:
        ended = subprocess.run(
            [folder / "venv" / "bin" / "python", "-I", "program.py"],
            stdin=read,
            stdout=out,
            stderr=subprocess.DEVNULL,
            cwd=place,
            env={},
        )
    return (place / "stdout").read_bytes(), ended.returncode


def status(result: RunResult) -> int:
    if result.verdict is Verdict.OK:
        return 0
    assert result.verdict is Verdict.ERROR, result
    return int(result.reason.removeprefix("exit status "))


def test_outputs_and_exit_statuses_are_those_of_plain_python(tmp_path: Path) -> None:
    assert len(PROGRAMS) >= 500
    venv.create(tmp_path / "venv", symlinks=True)
    jobs = [Job(source, stdin, limits=LIMITS) for _, source, stdin in PROGRAMS]
    with LocalExecutor(2) as executor, ThreadPoolExecutor(2) as threads:
        boxed = executor.run_all(jobs)
        expected = list(threads.map(lambda n: plain(tmp_path, n, PROGRAMS[n]), range(len(jobs))))
    differences = [
        (name, (result.stdout[-200:], result.reason, result.stderr[-300:]), (out[-200:], code))
        for (name, _, _), result, (out, code) in zip(PROGRAMS, boxed, expected, strict=True)
        if (result.stdout, status(result)) != (out, code)
    ]
    assert not differences, "\n".join(map(str, differences))


@pytest.mark.parametrize("said", ["\ud800", "print('\udcff')"])
def test_a_program_that_is_no_text_is_an_error_of_its_own(said: str) -> None:
    with LocalExecutor(1) as executor:
        assert executor.run(Job(said)).verdict is Verdict.ERROR
