"""Compiles the allow-list of system calls to the kernel's BPF.

The filter finds the number by a tree search. A linear list would be several times slower, both at
every call and at installation, when the kernel tries all numbers.
"""

from __future__ import annotations

import errno
import platform
from collections.abc import Sequence

from rlanything_coding.sandbox.base import SandboxUnavailable
from rlanything_coding.sandbox.syscalls import ALLOWED, CHECKED
from rlanything_sandbox.bpf import (
    ALLOW,
    ANY_BIT,
    ARCHITECTURES,
    ARGUMENTS_AT,
    AT_LEAST,
    EQUAL,
    ERRNO,
    KILL,
    LOAD,
    RETURN,
    Instruction,
    of_architecture,
    packed,
)

Code = list[Instruction]

_REFUSE = ERRNO | errno.EPERM
_AGAIN = ERRNO | errno.EAGAIN
_UNKNOWN = ERRNO | errno.ENOSYS

# A new thread of this process, in its namespaces: CLONE_VM, CLONE_SIGHAND, CLONE_THREAD and none of
# the flags that create something new.
_CLONE_THREAD = 0x00010000
_CLONE_FILES = 0x00000400
_CLONE_NEW = 0x7E020000 | 0x00004000 | 0x00002000 | 0x00000080 | 0x00001000
_AF_UNIX = 1
_SIGKILL = 9
_FUTEX_PRIVATE = 128
_FCNTL = (0, 1, 2, 3, 4, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FION*, FIO*CLEX
_PRCTL = (15, 16)  # PR_SET_NAME, PR_GET_NAME
# All but RLIMIT_CPU and RLIMIT_RTTIME: the kernel sends SIGKILL to a process that exceeds those. A
# program that could cause that would look as if it had been killed from outside.
_RLIMIT_CPU, _RLIMIT_RTTIME = 0, 15


def compile_filter(machine: str | None = None) -> bytes:
    """Returns the `struct sock_filter` array for a machine, by default this one.

    Raises `SandboxUnavailable` for a machine whose system calls are unknown."""
    machine = machine or platform.machine()
    if machine not in ARCHITECTURES:
        raise SandboxUnavailable(
            f"the sandbox knows no system calls of {machine}: run it on x86-64 or aarch64, or use a"
            " remote executor"
        )
    architecture, column = ARCHITECTURES[machine]
    leaves: dict[int, Code] = {
        number: [_answer(ALLOW)]
        for numbers in ALLOWED.values()
        if (number := numbers[column]) is not None
    }
    for name, numbers in CHECKED.items():
        if (number := numbers[column]) is not None:
            leaves[number] = _CHECKS[name]
    code: Code = [
        *of_architecture(architecture),
        # x32 calls have bit 30 set; the last interval refuses them.
        *_tree(_intervals(leaves)),
    ]
    return packed(code)


def _answer(action: int) -> Instruction:
    return (RETURN, 0, 0, action)


def _argument(index: int) -> Instruction:
    """Returns the instruction that loads the low half of an argument; of an int the kernel reads no
    more."""
    return (LOAD, 0, 0, ARGUMENTS_AT + 8 * index)


def _null(index: int, otherwise: int) -> Code:
    """Returns instructions that continue if a pointer is null, and otherwise skip `otherwise`
    more."""
    return [
        _argument(index),
        (EQUAL, 0, 2 + otherwise, 0),
        (LOAD, 0, 0, ARGUMENTS_AT + 8 * index + 4),
        (EQUAL, 0, otherwise, 0),
    ]


def _one_of(index: int, values: Sequence[int]) -> Code:
    tests = [(EQUAL, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [_argument(index), *tests, _answer(_REFUSE), _answer(ALLOW)]


def _another(index: int) -> Code:
    """Returns instructions that refuse a process id of 0 or less, which means a group."""
    return [_argument(index), (EQUAL, 1, 0, 0), (AT_LEAST, 0, 1, 2**31), _answer(_REFUSE)]


def _signal(index: int) -> Code:
    """Returns the check of a signal's number. Process 1 ignores a SIGKILL from itself, so the
    filter kills it instead."""
    return [_argument(index), (EQUAL, 0, 1, _SIGKILL), _answer(KILL), _answer(ALLOW)]


_CHECKS: dict[str, Code] = {
    "clone": [
        _argument(0),
        (ANY_BIT, 3, 0, _CLONE_NEW),
        (ANY_BIT, 0, 2, _CLONE_THREAD),
        # A separate descriptor table would have another 64 descriptors.
        (ANY_BIT, 0, 1, _CLONE_FILES),
        _answer(ALLOW),
        _answer(_REFUSE),
    ],
    # Its flags are in memory, which a filter cannot read; C libraries then fall back to clone.
    "clone3": [_answer(_UNKNOWN)],
    "fcntl": _one_of(1, _FCNTL),
    "ioctl": _one_of(1, _IOCTL),
    "prctl": _one_of(0, _PRCTL),
    "setrlimit": _one_of(0, range(_RLIMIT_CPU + 1, _RLIMIT_RTTIME)),
    # Only its own limits; all may be read (no new value), and those two not set.
    "prlimit64": [
        _argument(0),
        (EQUAL, 0, 8, 0),
        _argument(1),
        (AT_LEAST, 1, 0, _RLIMIT_RTTIME),
        (EQUAL, 0, 4, _RLIMIT_CPU),
        *_null(2, otherwise=1),
        _answer(ALLOW),
        _answer(_REFUSE),
    ],
    "socketpair": _one_of(0, (_AF_UNIX,)),
    # Only to its connected peer: no address.
    "sendto": [*_null(4, otherwise=1), _answer(ALLOW), _answer(_REFUSE)],
    # Shared futexes reach other boxes, through files that all of them show. C libraries use them
    # only to wait for the end of a thread, and check again at once when told to.
    "futex": [
        _argument(1),
        (ANY_BIT, 0, 1, _FUTEX_PRIVATE),
        _answer(ALLOW),
        _answer(_AGAIN),
    ],
    "kill": [*_another(0), *_signal(1)],
    "tkill": _signal(1),
    "tgkill": _signal(2),
}


def _intervals(leaves: dict[int, Code]) -> list[tuple[int, Code]]:
    """Returns the beginnings of runs of consecutive numbers with the same answer."""
    refused: Code = [_answer(_REFUSE)]
    intervals: list[tuple[int, Code]] = [(0, leaves.get(0, refused))]
    for number in sorted({0, *leaves, *(each + 1 for each in leaves)} - {0}):
        code = leaves.get(number, refused)
        if code != intervals[-1][1]:
            intervals.append((number, code))
    return intervals


def _tree(intervals: list[tuple[int, Code]]) -> Code:
    if len(intervals) == 1:
        return intervals[0][1]
    middle = len(intervals) // 2
    low, high = _tree(intervals[:middle]), _tree(intervals[middle:])
    # A conditional jump reaches at most 255 instructions: invert it around an unconditional one.
    if len(low) < 256:
        return [(AT_LEAST, len(low), 0, intervals[middle][0]), *low, *high]
    return [(AT_LEAST, 0, 1, intervals[middle][0]), (0x05, 0, 0, len(low)), *low, *high]
