"""The kernel's classic BPF, in which filters of system calls are written."""

from __future__ import annotations

import struct
from collections.abc import Sequence

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, operand."""

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
KILL, ALLOW, ERRNO = 0x80000000, 0x7FFF0000, 0x00050000

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""For each machine its number in a filter, and the column of its system calls in our tables."""


def of_architecture(architecture: int) -> list[Instruction]:
    """Returns the beginning of a filter: it kills what calls as another machine would, and loads
    the call's number."""
    return [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
    ]


def packed(code: Sequence[Instruction]) -> bytes:
    """Returns the array of `struct sock_filter`, as bwrap and the kernel read it."""
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
