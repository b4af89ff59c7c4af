"""The command that starts a box."""

from __future__ import annotations

from pathlib import Path

from rlanything_coding.sandbox.base import SandboxUnavailable
from rlanything_coding.sandbox.interpreter import (
    EXECUTABLE,
    LIBRARIES,
    PACKAGES,
    Interpreter,
)
from rlanything_sandbox.bubblewrap import ISOLATED, boxed, bubblewrap, no_bubblewrap

_ENVIRONMENT = {
    # Sets and dicts of strings keep the same order in every run.
    "PYTHONHASHSEED": "0",
    "LD_LIBRARY_PATH": str(LIBRARIES),
    # An arena reserves 64 MiB of the limited address space.
    "MALLOC_ARENA_MAX": "2",
    # Threads of numpy's BLAS would not survive the zygote's fork.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def box_command(python: Interpreter, channel: int) -> list[str]:
    """Returns the command of a box. Its zygote talks over the inherited descriptor `channel`, and
    the box ends with the thread that started the command.

    Raises `SandboxUnavailable` if bwrap is not installed."""
    program = bubblewrap()
    if program is None:
        raise SandboxUnavailable(f"{no_bubblewrap()}; programs that models write are run in a box")
    options = [*ISOLATED, "--clearenv", "--hostname", "box"]
    # The zygote makes a PID namespace for every run, which takes this capability within its own
    # user namespace. A run gives it up before the program begins.
    options += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    for name, value in _ENVIRONMENT.items():
        options += ["--setenv", name, value]
    rest: list[str] = []
    for folder in python.hidden:
        rest += ["--tmpfs", str(folder), "--remount-ro", str(folder)]
    # An empty read-only folder: a file left there would be visible to the next run, and its memory
    # would not count against any limit.
    rest += ["--dir", "/box", "--remount-ro", "/", "--chdir", "/box", "--"]
    # Like -I, except for PYTHONHASHSEED, which -I ignores. No -S: programs expect `exit` and
    # whatever else `site` adds; its package folders are empty here.
    zygote = Path(__file__).with_name("zygote.py").read_text(encoding="utf-8")
    rest += [str(EXECUTABLE), "-s", "-P", "-c", zygote, str(channel), str(PACKAGES)]
    return boxed(program, options, python.shown, rest)
