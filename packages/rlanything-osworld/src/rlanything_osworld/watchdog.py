"""Limits of a desktop: those that the kernel enforces per process, and those that the host watches.

Without cgroups from the host, no kernel limit counts the memory of several processes together. So a
thread sums the memory of the desktop's processes and files, and ends the desktop beyond the limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

EVERY_SECONDS = 0.25
_BYTES_OF_A_FILE = 1024
"""Kernel memory in bytes for a file of a tmpfs besides its content."""


@dataclass(frozen=True, slots=True)
class DesktopLimits:
    """Limits of one desktop."""

    memory_mb: int = 3072
    """All its processes and files together, in MiB."""
    process_memory_mb: int = 2048
    """Data of one process in MiB."""
    processes: int = 512
    """Largest number of processes and threads at once."""
    home_mb: int = 512
    """Size of the home folder in MiB; /tmp has half of it, and /dev/shm a quarter."""
    cpu_seconds: float = 1200.0
    """Total CPU seconds of all processes over the desktop's life."""
    wall_seconds: float = 3600.0
    """Longest life of the desktop in seconds."""

    def of_processes(self) -> dict[str, int]:
        """Returns the resource limits that the desktop's first process sets, by name."""
        return {
            "RLIMIT_DATA": self.process_memory_mb * 2**20,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_NOFILE": 4096,
            "RLIMIT_CORE": 0,
            "RLIMIT_FSIZE": self.home_mb * 2**20,
            "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_MEMLOCK": 2**20,
        }

    def of_folders(self) -> dict[str, int]:
        """Returns the writable folders, with their sizes in MiB."""
        return {
            "/home/user": self.home_mb,
            "/tmp": max(1, self.home_mb // 2),
            "/dev/shm": max(1, self.home_mb // 4),
            "/run/user": 16,
        }


class Watchdog:
    """Watches a desktop in a separate thread, and ends it beyond a limit."""

    def __init__(
        self, process: subprocess.Popen[bytes], information: int, limits: DesktopLimits
    ) -> None:
        """`information`: the descriptor on which bwrap reports the first process inside."""
        self.reason: str | None = None
        """The limit that ended the desktop, or None."""
        self.began = False
        """True once bwrap has created the namespaces."""
        self._process = process
        self._limits = limits
        self._root: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(information,), daemon=True)
        self._thread.start()

    def memory(self) -> int:
        """Returns bytes of memory: of processes, and of files in memory-backed folders."""
        if self._root is None:
            return 0
        total = 0
        for name in self._numbers():
            with contextlib.suppress(OSError, ValueError):
                status = self._read(f"proc/{name}/status")
                for line in status.splitlines():
                    if line.startswith(("RssAnon:", "RssShmem:", "VmPTE:")):
                        total += int(line.split()[1]) * 1024
        for folder in self._limits.of_folders():
            with contextlib.suppress(OSError):
                held = os.statvfs(f"/proc/self/fd/{self._root}{folder}")
                total += (held.f_blocks - held.f_bfree) * held.f_frsize
                total += (held.f_files - held.f_ffree) * _BYTES_OF_A_FILE
        return total

    def cpu_seconds(self) -> float:
        """Returns the CPU time of its processes, and of their children that have ended."""
        ticks = 0
        for name in self._numbers():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = self._read(f"proc/{name}/stat").rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Ends the watch."""
        self._over.set()
        self._thread.join()
        if self._root is not None:
            os.close(self._root)
            self._root = None

    def _watch(self, information: int) -> None:
        try:
            self._root = self._open(information)
        finally:
            os.close(information)
        deadline = time.monotonic() + self._limits.wall_seconds
        while self._root is not None and not self._over.wait(EVERY_SECONDS):
            if reason := self._exceeded(deadline):
                self.reason = reason
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                return

    def _open(self, information: int) -> int | None:
        """Returns the desktop's root, whose /proc lists only its processes."""
        said = b""
        while not self._over.is_set() and b"}" not in said:
            if select.select([information], [], [], EVERY_SECONDS)[0]:
                more = os.read(information, 4096)
                if not more:
                    return None
                said += more
        if b"}" not in said:
            return None  # closed before it began
        self.began = True
        # The first process inside still has the host's files: it gets its own root later.
        child = json.loads(said)["child-pid"]
        while not self._over.wait(0.02):
            with contextlib.suppress(OSError):
                root = os.open(f"/proc/{child}/root", os.O_PATH | os.O_DIRECTORY)
                own = os.path.samestat(os.fstat(root), os.stat("/"))
                if not own and os.path.isdir(f"/proc/self/fd/{root}/opt/guest"):
                    return root
                os.close(root)
            if not os.path.exists(f"/proc/{child}"):
                return None
        return None

    def _exceeded(self, deadline: float) -> str | None:
        if time.monotonic() > deadline:
            return f"the desktop lived for {self._limits.wall_seconds:g} s, its limit"
        if self.memory() > self._limits.memory_mb * 2**20:
            return f"the desktop held more than {self._limits.memory_mb} MiB of memory, its limit"
        if self.cpu_seconds() > self._limits.cpu_seconds:
            return f"the desktop used {self._limits.cpu_seconds:g} s of CPU time, its limit"
        return None

    def _numbers(self) -> list[str]:
        with contextlib.suppress(OSError):
            names = os.listdir(f"/proc/self/fd/{self._root}/proc")
            return [name for name in names if name.isdecimal()]
        return []

    def _read(self, path: str) -> str:
        with open(f"/proc/self/fd/{self._root}/{path}", encoding="utf-8", errors="replace") as file:
            return file.read()
