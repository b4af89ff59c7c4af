"""Bubblewrap boxes: their commands, for root as an otherwise unused user, and their processes.

Root's own processes do not count towards RLIMIT_NPROC, and root owns the host's files. So a box
started by root runs as an unused user id, to which `as_other_user` shows the files of the box.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path, PurePosixPath


class Writable(PurePosixPath):
    """A path in a box whose files on the host the box may change."""


Shown = tuple[Path, PurePosixPath]
"""A path on the host and its path in a box, read-only unless that is `Writable`."""

ISOLATED = ("--unshare-user", "--unshare-all", "--die-with-parent")
"""New namespaces, which end with bwrap; bwrap ends with the thread that starts it, so keep that
thread. No --new-session: a box is killed through its process group, and the first process inside
would leave the group before it has asked to die with bwrap. Code that runs untrusted programs
inside calls `setsid`, because they could signal the group."""

READ_IN_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl")
READ_IN_ETC += ("/etc/mime.types",)
"""The host's files outside of `system` that ordinary programs read."""
_WRITTEN_BYTES = 256 * 2**20
"""Largest file in bytes that a program in a box may write, its output included."""
_PROCESSES = 1024
_LAST_WORDS_SECONDS = 2.0
_STAGING = "/tmp"
_HOME = "/tmp"
_BESIDE_USR = ("bin", "sbin", "lib", "lib32", "lib64")


def bubblewrap() -> str | None:
    """Returns the path of bwrap, or None if it is not installed."""
    path = shutil.which("bwrap")
    return None if path is None else os.path.abspath(path)


def no_bubblewrap() -> str:
    """Returns why there is no bwrap on this machine, with the remedy."""
    if sys.platform == "linux":
        return "bwrap is not installed: on Debian and Ubuntu, apt-get install bubblewrap"
    return f"bwrap needs Linux, and this is {sys.platform}: use a Linux machine or container"


def boxed(
    program: str,
    options: Sequence[str],
    shown: Sequence[Shown],
    rest: Sequence[str],
) -> list[str]:
    """Returns the command of a box.

    `program`: bwrap. `options`: bwrap's, before the files. `shown`: the host's files in it. `rest`:
    more options and the command inside."""
    if os.geteuid() != 0:
        return [program, *options, *_binds(shown), *rest]
    staged = [(str(source), f"shown-{i}") for i, (source, _) in enumerate(shown)]
    places = [(Path(_STAGING, f"shown-{i}"), target) for i, (_, target) in enumerate(shown)]
    wanted = {
        "user": unused_user(),
        "staging": _STAGING,
        "shown": [*staged, (program, "bwrap")],
        "command": [f"{_STAGING}/bwrap", *options, *_binds(places), *rest],
    }
    script = str(Path(__file__).with_name("as_other_user.py"))
    return [sys.executable, "-I", "-S", script, json.dumps(wanted)]


def system() -> tuple[list[Shown], list[str]]:
    """Returns the host's programs and libraries as files to show, and the options that recreate
    top-level symlinks of the host."""
    links = [name for name in _BESIDE_USR if os.path.islink(f"/{name}")]
    folders = [Path("/", name) for name in ("usr", *_BESIDE_USR) if name not in links]
    options = [word for name in links for word in ("--symlink", f"usr/{name}", f"/{name}")]
    return [(path, PurePosixPath(path)) for path in folders if path.is_dir()], options


def shown_in_place(paths: Iterable[Path], places: Sequence[Shown]) -> list[Shown]:
    """Returns paths of the host as files to show in the same place. Left out are paths that do not
    exist, and those in `places`, which are shown already."""
    return [
        (path, PurePosixPath(path))
        for path in dict.fromkeys(paths)
        if path.exists() and not any(path.is_relative_to(place) for place, _ in places)
    ]


def resource_limits(memory_mb: int, file_bytes: int = _WRITTEN_BYTES) -> dict[str, int]:
    """Returns the limits of a box's processes by their names in `resource`. `memory_mb`: of each
    process. `file_bytes`: largest file that one may write."""
    return {
        "RLIMIT_DATA": memory_mb * 2**20,
        "RLIMIT_FSIZE": file_bytes,
        "RLIMIT_NPROC": _PROCESSES,
        "RLIMIT_CORE": 0,
    }


def offline_box(
    program: str,
    name: str,
    folder: Path,
    shown: Sequence[Path],
    memory_mb: int,
    start: Sequence[str],
    options: Sequence[str],
    more: Sequence[Shown] = (),
) -> list[str]:
    """Returns the command of a box for a user's program. It has the host's programs, this Python
    and the shown paths, all read-only; its own /tmp; and no network.

    `program`: bwrap. `name`: the host's name in it. `folder`: working directory, shown too.
    `shown`: paths of the host, in the same place. `memory_mb`: size of /tmp. `start`: the command
    inside. `options`: more of bwrap's, which may set further variables. `more`: files in other
    places."""
    places, links = system()
    paths = [Path(sys.prefix), Path(sys.base_prefix), folder, *shown, *map(Path, READ_IN_ETC)]
    settings = [*ISOLATED, "--clearenv", "--hostname", name, "--uid", "1000", "--gid", "1000"]
    settings += ["--cap-drop", "ALL"]
    path = os.pathsep.join([str(Path(sys.prefix, "bin")), "/usr/local/bin", "/usr/bin", "/bin"])
    home = {"PATH": path, "HOME": _HOME, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    for variable, value in home.items():
        settings += ["--setenv", variable, value]
    # Mounted before the shown paths, which may be under it.
    settings += [*options, "--size", str(memory_mb * 2**20), "--tmpfs", _HOME]
    rest = [*links, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev", "--remount-ro", "/"]
    rest += ["--chdir", str(folder), "--", *start]
    return boxed(program, settings, [*places, *shown_in_place(paths, places), *more], rest)


class BoxProcess:
    """A box that was started, and the socket to its first process. It ends with the thread that
    started it."""

    def __init__(self, command: Callable[[int], Sequence[str]]) -> None:
        """`command`: returns the command of the box, from the descriptor that its first process
        inherits."""
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                command(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
                # One process group contains every process of the box, and the terminal's Ctrl-C
                # does not reach it.
                start_new_session=True,
            )

    def fault(self, seconds: float, settings: bytes = b"") -> str | None:
        """Waits until the box says that it is ready. `settings`: sent to it before. Returns None,
        or why it is not ready and the remedy, after ending it."""
        self.channel.settimeout(seconds)
        ready = b""
        with contextlib.suppress(OSError):
            if settings:
                self.channel.send(settings)
            ready = self.channel.recv(16)
        return None if ready == b"ready" else refusal(self._last_words())

    def kill(self, seconds: float) -> None:
        """Kills every process of the box, and waits until the outermost is gone."""
        self._signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def _last_words(self) -> str:
        self.channel.close()
        stderr = b""
        for blow in (signal.SIGTERM, signal.SIGKILL):
            self._signal(blow)
            with contextlib.suppress(subprocess.TimeoutExpired):
                _, stderr = self.process.communicate(timeout=_LAST_WORDS_SECONDS)
                break
        return stderr.decode("utf-8", "replace")

    def _signal(self, number: signal.Signals) -> None:
        if self.process.returncode is not None:
            return  # its number may be another process's by now
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def refusal(stderr: str) -> str:
    """Returns why a box did not start, and the remedy, from bwrap's output; one line."""
    last = stderr.strip().splitlines()[-1] if stderr.strip() else "it printed nothing"
    return (
        f"bwrap cannot make a box here ({last}): allow unprivileged user namespaces (sysctl "
        "kernel.unprivileged_userns_clone, user.max_user_namespaces, "
        "kernel.apparmor_restrict_unprivileged_userns; in a container, its seccomp profile)"
    )


def _binds(shown: Sequence[Shown]) -> list[str]:
    kinds = {True: "--bind", False: "--ro-bind"}
    binds = [(kinds[isinstance(place, Writable)], path, place) for path, place in shown]
    return [str(word) for bind in binds for word in bind]


@cache
def unused_user() -> int:
    """Returns an id without an account or a process, within the usual range of a user namespace."""
    taken = {each.pw_uid for each in pwd.getpwall()}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            taken.add(os.stat(f"/proc/{name}").st_uid)
    return next(user for user in range(64001, 65000) if user not in taken)
