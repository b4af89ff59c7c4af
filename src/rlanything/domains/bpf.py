"""The kernel's classic BPF, the language of system call filters."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, operand."""

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
KILL, ALLOW, ERRNO = 0x80000000, 0x7FFF0000, 0x00050000

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""For each machine its number in a filter, and the column of its system calls in our tables."""

_DEBUGGING = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
}
_X32 = 0x40000000


def of_architecture(architecture: int) -> list[Instruction]:
    """Returns the beginning of a filter: it kills calls made for another architecture, and loads
    the number of the call."""
    return [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
    ]


def no_debuggers() -> bytes | None:
    """Returns a filter that refuses system calls which access another process; None on an
    unsupported machine."""
    if os.uname().machine not in ARCHITECTURES:
        return None
    architecture, column = ARCHITECTURES[os.uname().machine]
    code = [*of_architecture(architecture), (AT_LEAST, 0, 1, _X32)]
    code.append((RETURN, 0, 0, ERRNO | errno.EPERM))
    for numbers in _DEBUGGING.values():
        code += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, ERRNO | errno.EPERM)]
    return packed([*code, (RETURN, 0, 0, ALLOW)])


def packed(code: Sequence[Instruction]) -> bytes:
    """Returns the array of `struct sock_filter`, in the format of bwrap and the kernel."""
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
