"""OpenMP threads that sleep while they wait for one another, instead of spinning.

Where another program wants a core, threads that spin at barriers wait for one that does not run: a
call that takes half a second takes half a minute. The price is paid on a quiet machine, where
spinning threads generate about 1.5 times as fast; processes of one thread win that back.
"""

from __future__ import annotations

import os
import sys
import warnings

SLEEP_AT_BARRIERS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""What OpenMP libraries read once, when torch is first imported."""

_came_too_late = False


def sleep_at_barriers() -> None:
    """Sets the environment for OpenMP threads that sleep, unless the user has said what they do."""
    global _came_too_late
    if any(variable in os.environ for variable in SLEEP_AT_BARRIERS):
        return
    _came_too_late = "torch" in sys.modules
    os.environ.update(SLEEP_AT_BARRIERS)


def warn_of_spinning(threads: int) -> None:
    """Warns, once, where threads will spin because torch was imported before this package."""
    global _came_too_late
    if _came_too_late and threads > 1:
        _came_too_late = False
        warnings.warn(
            f"torch was imported before rlanything, so its {threads} threads spin while they wait, "
            "which is many times slower beside another busy program: import rlanything first, or "
            "set OMP_WAIT_POLICY=passive",
            RuntimeWarning,
            stacklevel=2,
        )
