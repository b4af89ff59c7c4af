"""Peak memory of a piece of work, beyond what was in use before it."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from pathlib import Path

MEGABYTE = 1e6
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def measurable() -> bool:
    """Returns whether it can be measured: that takes Linux, and glibc, which frees when asked."""
    return platform.libc_ver()[0] == "glibc" and os.access(_RESET, os.W_OK)


def peak_megabytes(work: Callable[[], object]) -> float:
    """Returns the largest resident set while `work` runs, less that before it. See `measurable`."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    _RESET.write_text(_RESET_PEAK)
    before = _status("VmRSS")
    work()
    return (_status("VmHWM") - before) / MEGABYTE


def _status(name: str) -> float:
    """Returns a size from the kernel's page about this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)
