"""TensorBoard's files, read."""

from __future__ import annotations

import struct
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]


def points(folder: Path) -> list[tuple[str, int, float]]:
    """(name, step, value) of all scalars, in the order in which they were written."""
    scalars: list[tuple[str, int, float]] = []
    for path in sorted(folder.glob("events.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            scalars += [(v.tag, event.step, v.simple_value) for v in event.summary.value]
            at += 12 + length + 4
    return scalars
