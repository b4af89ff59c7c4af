"""The command that starts a box: bubblewrap and, for root, the change to an unused user id."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from rlanything.domains.coding.sandbox.base import SandboxUnavailable
from rlanything.domains.coding.sandbox.interpreter import (
    EXECUTABLE,
    LIBRARIES,
    PACKAGES,
    Interpreter,
)

_HERE = Path(__file__).parent
_STAGING = "/tmp"
_ENVIRONMENT = {
    # Sets and dicts of strings keep their order from run to run.
    "PYTHONHASHSEED": "0",
    "LD_LIBRARY_PATH": str(LIBRARIES),
    # An arena reserves 64 MiB of address space, which is limited.
    "MALLOC_ARENA_MAX": "2",
    # Threads of numpy's BLAS would not survive the zygote's fork.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def bubblewrap() -> str:
    """Returns the path of bwrap. Raises `SandboxUnavailable` where it is not installed."""
    path = shutil.which("bwrap")
    if path is None:
        raise SandboxUnavailable(
            "bwrap is not installed: model-written programs are not run without it; install "
            "bubblewrap (Debian, Ubuntu: apt-get install bubblewrap)"
        )
    return os.path.abspath(path)


def box_command(python: Interpreter, channel: int) -> list[str]:
    """Returns the command of a box whose zygote talks over the inherited descriptor `channel`."""
    if os.geteuid() != 0:
        return _bubblewrap_command(bubblewrap(), python, channel)
    # Root's own processes are not counted against RLIMIT_NPROC, and root owns the host's files.
    staged = [(str(source), f"shown-{i}") for i, (source, _) in enumerate(python.shown)]
    shown = [
        (Path(_STAGING, name), target)
        for (_, name), (_, target) in zip(staged, python.shown, strict=True)
    ]
    staged.append((bubblewrap(), "bwrap"))
    inner = _bubblewrap_command(
        f"{_STAGING}/bwrap", Interpreter(tuple(shown), python.hidden), channel
    )
    wanted = {"user": _unused_user(), "staging": _STAGING, "shown": staged, "command": inner}
    script = str(_HERE / "as_other_user.py")
    return [sys.executable, "-I", "-S", script, json.dumps(wanted)]


def _bubblewrap_command(program: str, python: Interpreter, channel: int) -> list[str]:
    command = [program, "--unshare-user", "--unshare-all", "--clearenv"]
    command += ["--hostname", "box"]
    # The zygote makes a PID namespace for every run, which takes this capability within its own
    # user namespace. A run gives it up before the program begins.
    command += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    for name, value in _ENVIRONMENT.items():
        command += ["--setenv", name, value]
    for source, target in python.shown:
        command += ["--ro-bind", str(source), str(target)]
    for folder in python.hidden:
        command += ["--tmpfs", str(folder), "--remount-ro", str(folder)]
    # An empty folder that cannot be written: a file left there would be seen by the next run, and
    # its memory would be counted nowhere.
    command += ["--dir", "/box", "--remount-ro", "/", "--chdir", "/box", "--"]
    # As -I, but for PYTHONHASHSEED, which -I ignores.
    zygote = (_HERE / "zygote.py").read_text(encoding="utf-8")
    return [*command, str(EXECUTABLE), "-s", "-P", "-S", "-c", zygote, str(channel), str(PACKAGES)]


@cache
def _unused_user() -> int:
    """Returns an id that no account and no process has, within what a user namespace usually
    maps."""
    taken = {each.pw_uid for each in pwd.getpwall()} | set(_owners(os.listdir("/proc")))
    return next(user for user in range(64001, 65000) if user not in taken)


def _owners(names: Sequence[str]) -> list[int]:
    owners = []
    for name in names:
        try:
            owners.append(os.stat(f"/proc/{name}").st_uid)
        except OSError:  # ended meanwhile
            continue
    return owners
