"""The kernel's classic BPF, the language of system call filters."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Mapping, Sequence

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, operand."""

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
KILL, ALLOW, ERRNO = 0x80000000, 0x7FFF0000, 0x00050000

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""For each machine its number in a filter, and the column of its system calls in our tables."""

Numbers = tuple[int | None, int | None]
"""Number of a system call on x86-64 and aarch64 (None: has none)."""

DEBUGGING: dict[str, Numbers] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
}
"""System calls that access another process."""
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


def without_x32(architecture: int) -> list[Instruction]:
    """Returns the beginning of a deny-list: x32 calls, whose numbers have bit 30 set, are
    refused."""
    return [*of_architecture(architecture), (AT_LEAST, 0, 1, _X32), _refusal(errno.EPERM)]


def refused(
    calls: Mapping[str, Numbers], column: int, reason: int = errno.EPERM
) -> list[Instruction]:
    """Returns instructions that refuse system calls with an error number."""
    code: list[Instruction] = []
    for numbers in calls.values():
        number = numbers[column]
        if number is not None:
            code += [(EQUAL, 0, 1, number), _refusal(reason)]
    return code


def _refusal(reason: int) -> Instruction:
    return (RETURN, 0, 0, ERRNO | reason)


def no_debuggers() -> bytes | None:
    """Returns a filter that refuses system calls which access another process; None on an
    unsupported machine."""
    if os.uname().machine not in ARCHITECTURES:
        return None
    architecture, column = ARCHITECTURES[os.uname().machine]
    code = [*without_x32(architecture), *refused(DEBUGGING, column), (RETURN, 0, 0, ALLOW)]
    return packed(code)


def packed(code: Sequence[Instruction]) -> bytes:
    """Returns the array of `struct sock_filter`, in the format of bwrap and the kernel."""
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
