"""The journal of a served policy: every answer, outcome and update, as a line of JSON each.

A line is on the disk before anything that follows from it leaves the process, so a restarted
process knows all that its clients know. A last line that a kill left unfinished is dropped: nobody
has seen what it was to say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = Mapping[str, Any]
"""A line of a journal; its `kind` is "answers", "heard", "ended", "forgotten" or "update"."""


class JournalError(ValueError):
    """A journal cannot be read or written; the message is one line with the remedy."""


class Journal:
    """A file that lines are only added to."""

    def __init__(self, path: Path) -> None:
        """Opens a journal, which is created if it does not exist. Raises `JournalError`."""
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            self._end = _whole_lines(self._file)
            os.ftruncate(self._file, self._end)
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}; see that it can be written") from None

    def close(self) -> None:
        os.close(self._file)

    def events(self) -> Iterator[Event]:
        """Yields all lines, oldest first. Raises `JournalError` for one that was not written
        here."""
        with open(os.dup(self._file), "rb") as file:
            file.seek(0)
            for number, line in enumerate(file, start=1):
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    event = None
                if not isinstance(event, dict) or "kind" not in event:
                    raise JournalError(
                        f"{self.path}: line {number} is damaged; restore the file from a copy"
                    )
                yield event

    def write(self, *events: Event, synced: bool = True) -> None:
        """Adds lines, all or none. `synced`: wait until they are on the disk. Raises
        `JournalError`."""
        data = "".join(f"{json.dumps(event)}\n" for event in events).encode()
        try:
            written = os.pwrite(self._file, data, self._end)
            if written < len(data):
                raise OSError(0, "no space left on device")
            if synced:
                os.fsync(self._file)
        except BaseException as error:  # a signal as well: half a line must not stay
            os.ftruncate(self._file, self._end)
            if not isinstance(error, OSError):
                raise
            raise JournalError(
                f"{self.path}: cannot be written ({error.strerror}); free space there"
            ) from None
        self._end += len(data)


def _whole_lines(file: int) -> int:
    """Returns the size of a file up to the end of its last whole line."""
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - (1 << 16))
        if (at := os.pread(file, end - start, start).rfind(b"\n")) >= 0:
            return start + at + 1
        end = start
    return 0
