"""A limit for the lines of a file, which may be a packed one of a thousand times its size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from rlanything.rollout.lines import RolloutsError

MOST_BYTES = 256 << 20
"""Longest line: one trajectory with all its texts."""


def limited_lines(path: Path, file: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines of a file. Raises `RolloutsError` for one that is too long, before all of it
    is in memory."""
    if not hasattr(file, "readline"):  # rows of a table
        yield from file
        return
    source, number = cast("BinaryIO", file), 0
    while line := source.readline(MOST_BYTES + 1):
        number += 1
        if len(line) > MOST_BYTES:
            raise RolloutsError(
                f"{path}, line {number}: longer than {MOST_BYTES >> 20} MiB; write each trajectory "
                "on a line of its own"
            )
        yield line
