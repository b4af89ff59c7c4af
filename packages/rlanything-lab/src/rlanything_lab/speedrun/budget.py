"""Running a command until its processes have used up their CPU seconds."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.5
_SET_CHILD_SUBREAPER = 36
"""Option of Linux's `prctl`: orphans among the descendants become children of this process."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of a command, and how it ended."""

    cpu_seconds: float
    """CPU seconds of all its processes."""
    wall_seconds: float
    exit_code: int | None
    """None: it was killed because its CPU seconds were used up."""


def run_within(
    cpu_seconds: float, command: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Spent:
    """Runs a command with its output in `log`, and kills it with all its processes once they have
    used `cpu_seconds` together. Processes that leave its session or lose their parent count too."""
    begun = time.perf_counter()
    with _orphans_adopted(), log.open("ab") as output:
        others = _descendants(_processes())
        before = _tree_seconds()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
        try:
            while process.poll() is None and _tree_seconds() - before < cpu_seconds:
                time.sleep(POLL_SECONDS)
            exit_code = process.returncode
            # Before anything is killed: a process that init reaps is counted nowhere.
            spent = _tree_seconds() - before
        finally:
            _kill(others)
            process.wait()
    return Spent(spent, time.perf_counter() - begun, exit_code)


@contextmanager
def on_cores(count: int) -> Iterator[int]:
    """Restricts this process and those that it starts inside to at most `count` cores; yields the
    number of cores."""
    before = os.sched_getaffinity(0)
    chosen = sorted(before)[:count]
    os.sched_setaffinity(0, chosen)
    try:
        yield len(chosen)
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _orphans_adopted() -> Iterator[None]:
    system = ctypes.CDLL(None, use_errno=True)
    system.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        system.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _tree_seconds() -> float:
    """Returns the CPU seconds of all descendants of this process: of the live ones, and of those
    that ended and were waited for."""
    processes, usage = _processes(), os.times()
    ticks = sum(processes[pid][1] for pid in _descendants(processes))
    return usage.children_user + usage.children_system + ticks / _TICKS


def _descendants(processes: Mapping[int, tuple[int, int]]) -> set[int]:
    descendants, new = set[int](), {os.getpid()}
    while new:
        new = {pid for pid, (parent, _) in processes.items() if parent in new} - descendants
        descendants |= new
    return descendants


def _processes() -> dict[int, tuple[int, int]]:
    """Returns parent, and CPU ticks of itself and of its children that ended, of each process."""
    processes: dict[int, tuple[int, int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended
                # The name of the program, in brackets, may contain anything.
                stat = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2]
                fields = stat.split()
                processes[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    return processes


def _kill(others: set[int]) -> None:
    """Kills all descendants of this process but `others`, and waits for those that are its
    children."""
    while alive := _descendants(_processes()) - others:
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in alive:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
