"""Whether programs are at work, so that the screen may still change."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

LOOKS, LOOK_SECONDS = 6, 0.025
"""Number of samples of the processes, and seconds between them."""
SHARE = 0.2
"""Share of a processor that a blinking cursor may use."""
STARTING_SECONDS = 15.0
"""Seconds for which an application without windows may wait for something without being at work;
that can be long on a crowded machine."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A process at one moment."""

    state: str
    parent: int
    ticks: int
    """Processor ticks since its start."""
    began: float
    """Seconds from the start of the machine to its own."""


def busy(owners: set[int]) -> bool:
    """Watches for a moment, and returns whether programs are at work or an application is
    starting."""
    return at_work() or starting(owners)


def at_work() -> bool:
    """Watches for a moment, and returns whether any other program is at work: it uses the
    processor, waits for the processor or the disk, or has started or ended."""
    before = processes()
    waiting = 0
    after = before
    for _look in range(LOOKS):
        time.sleep(LOOK_SECONDS)
        after = processes()
        waiting += any(process.state in "RD" for process in after.values())
    spent = sum(
        process.ticks - (before[pid].ticks if pid in before else 0)
        for pid, process in after.items()
    )
    return waiting > 1 or spent > SHARE * LOOKS * LOOK_SECONDS * TICKS or set(after) != set(before)


def processes() -> dict[int, Process]:
    """Returns all processes except this one."""
    running = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # the process has ended meanwhile
                continue
            ticks = int(fields[11]) + int(fields[12])
            running[int(name)] = Process(fields[0], int(fields[1]), ticks, int(fields[19]) / TICKS)
    return running


def starting(owners: set[int]) -> bool:
    """Returns whether the server or the launcher started an application that shows nothing yet.

    `owners`: the processes with windows that describe their content."""
    alive = processes()
    now = float(Path("/proc/uptime").read_text().split()[0])
    starters = {os.getpid(), *(pid for pid in alive if _is_launcher(pid))}
    shown = set()
    for owner in owners:
        while owner in alive and owner not in shown:
            shown.add(owner)
            owner = alive[owner].parent
    return any(
        process.parent in starters
        and process.state != "Z"
        and pid not in shown
        and now - process.began < STARTING_SECONDS
        for pid, process in alive.items()
    )


def _is_launcher(pid: int) -> bool:
    try:
        return b"launcher.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
