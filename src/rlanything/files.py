"""Files and folders that appear whole or not at all, and that no link leads anywhere else; and
files of others, read within limits.

Each is made under a name that nothing has yet, beside its place, and renamed: two processes that
write the same do not meet, and a link that waits there is replaced, not followed.
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
    """Returns the content of a plain file. Raises OSError, also for what is no plain file (a pipe
    or a device may never end) or is larger than `most_bytes`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no plain file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(f"it is larger than {most_bytes >> 10:,} KiB")
    return content


def replace_file(path: Path, content: bytes, synced: bool = False) -> None:
    """Writes a file over what has its name. `synced`: it is on the disk before it has. Raises
    OSError."""
    partial = _beside(path)
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
    """Yields an empty folder that is renamed to `place` at the end, and deleted where anything goes
    wrong. Raises FileExistsError where there is something by then, and other OSErrors."""
    partial = _beside(place)
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


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
