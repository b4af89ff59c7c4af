"""Atomic writes of files and folders, and limited reads of untrusted files.

Each is created under a new name next to its destination, then renamed. Two writers of the same file
do not collide, and a link at the destination is replaced, not followed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


def read_plain(path: Path, most_bytes: int) -> bytes:
    """Returns the content of a regular file. Raises OSError if it cannot be read, is not regular (a
    pipe or a device may never end), or is larger than `most_bytes`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is not a regular file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(f"it is larger than {most_bytes >> 10:,} KiB")
    return content


def replace_file(path: Path, content: bytes, synced: bool = False) -> None:
    """Writes a file atomically, replacing an existing one. `synced`: flush it to disk before it
    gets its name. Raises OSError."""
    partial = _partial(path)
    descriptor = os.open(partial, _NEW, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if synced:
                os.fsync(descriptor)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(place: Path) -> Iterator[Path]:
    """Yields an empty folder that is renamed to `place` at the end, and deleted on any error.
    Raises FileExistsError if something exists there by then, and other OSErrors."""
    partial = _partial(place)
    partial.mkdir(parents=True)
    try:
        yield partial
        try:
            partial.rename(place)
        except OSError as error:
            if os.path.lexists(place):
                raise FileExistsError(error.errno, "exists already", str(place)) from None
            raise
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
