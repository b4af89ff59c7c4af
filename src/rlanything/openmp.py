"""Cores, and OpenMP threads that sleep at barriers instead of spinning.

If another program uses a core, spinning threads wait for one that is not running: a call of half a
second takes half a minute. On an idle machine, spinning threads generate about 1.5 times as fast;
single-threaded processes win that back.
"""

from __future__ import annotations

import os
import sys
import warnings

SLEEP_AT_BARRIERS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""Variables that OpenMP libraries read once, when torch is first imported."""

_came_too_late = False


def sleep_at_barriers() -> None:
    """Makes OpenMP threads sleep at barriers, unless the user has chosen their behaviour."""
    global _came_too_late
    if any(variable in os.environ for variable in SLEEP_AT_BARRIERS):
        return
    _came_too_late = "torch" in sys.modules
    os.environ.update(SLEEP_AT_BARRIERS)


def cores() -> int:
    """Returns the number of cores that this process may use; all of them on macOS."""
    return len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0))


def warn_of_spinning(threads: int) -> None:
    """Warns, once, if threads will spin because torch was imported before this package."""
    global _came_too_late
    if _came_too_late and threads > 1:
        _came_too_late = False
        warnings.warn(
            f"torch was imported before rlanything, so its {threads} threads spin while they wait, "
            "which is many times slower next to another busy program: import rlanything first, or "
            "set OMP_WAIT_POLICY=passive",
            RuntimeWarning,
            stacklevel=2,
        )
