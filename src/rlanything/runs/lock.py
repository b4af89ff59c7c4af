"""One process at a time writes a run directory."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from rlanything.runs.paths import LOCK, STORE, check_single, inside

PID_DIGITS = 20
"""No process has a longer number."""


class LockedError(ValueError):
    """Somebody else is at work in the run directory; the message is one line with the remedy."""


class RunLock:
    """The lock of a run directory, held inside the context.

    The system holds it for the process and lets go when that ends, however it ends: the pid in the
    file only tells others which process they wait for, and outlives one that was killed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        """Raises `LockedError` if somebody else holds the lock, `RunDirectoryError` if it, or the
        store, is a link or has a second name."""
        for name in (LOCK, STORE):  # which are written in place
            check_single(inside(self._directory, name))
        file = _open(self._directory, os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(PID_DIGITS).strip()
            file.close()
            if holder == str(os.getpid()):
                raise LockedError(
                    f"{self._directory} is in use by this program: an iterator over its run is "
                    "still open; use it up, or close it (`.close()`)"
                ) from None
            raise LockedError(
                f"{self._directory} is in use by process {holder}: wait until it ends, or stop it "
                f"with `kill {holder}`"
            ) from None
        file.seek(0)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that has a run directory's lock, or ended without giving it back."""

    pid: int
    at_work: bool


def find_holder(directory: Path) -> Holder | None:
    """Returns the process named in a directory's lock; None where the lock is free and the last one
    gave it back. Raises `RunDirectoryError` if the lock is a link."""
    try:
        with _open(directory) as file:
            pid = file.read(PID_DIGITS).strip()
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                at_work = False
            except BlockingIOError:
                at_work = True
    except OSError:
        return None
    return Holder(int(pid), at_work) if pid.isdigit() else None


def _open(directory: Path, more: int = 0) -> IO[str]:
    descriptor = os.open(inside(directory, LOCK), os.O_RDWR | os.O_NOFOLLOW | more, 0o666)
    return open(descriptor, "r+", encoding="utf-8", errors="replace")
