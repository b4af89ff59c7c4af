"""The system calls that nothing in a desktop may make, as a filter for bubblewrap.

This is a deny-list, whereas the sandbox of programs has an allow-list: browsers and office suites
use too much of the kernel. It refuses namespaces and mounts, other processes' memory, keys and the
kernel's log, which no namespace isolates, and memory outside our limits. System calls that need a
capability need no entry: a desktop has no capabilities.
"""

from __future__ import annotations

import errno
import os

from rlanything.domains.base import DomainError
from rlanything_sandbox.bpf import (
    ALLOW,
    ANY_BIT,
    ARCHITECTURES,
    ARGUMENTS_AT,
    DEBUGGING,
    EQUAL,
    ERRNO,
    LOAD,
    RETURN,
    Numbers,
    packed,
    refused,
    without_x32,
)

_REFUSED: dict[str, Numbers] = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    **DEBUGGING,
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "syslog": (103, 116),
    # Memory that belongs to no process: System V segments and message queues.
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
}
# Programs then use a fallback, as on a kernel that lacks these calls.
_UNKNOWN: dict[str, Numbers] = {
    "clone3": (435, 435),  # its flags are in memory, which a filter cannot read
    "memfd_create": (319, 279),  # it counts towards no process and no file system's size
    "memfd_secret": (447, 447),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_CLONE = (56, 220)
_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME."""

_SOCKET = (41, 198)
_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, INET, INET6 and NETLINK, which stay inside the desktop. AF_VSOCK would reach the host of
a virtual machine, regardless of the network namespace."""


def syscall_filter() -> bytes:
    """Returns the compiled filter (classic BPF), in the format of `bwrap --seccomp`.

    Raises `DomainError` on a machine that is neither x86-64 nor aarch64."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise DomainError(f"no desktop on {machine}: use a machine with x86-64 or aarch64")
    architecture, column = ARCHITECTURES[machine]
    count = len(_FAMILIES)
    code = [
        *without_x32(architecture),
        *refused(_REFUSED, column),
        *refused(_UNKNOWN, column, errno.ENOSYS),
        (EQUAL, 0, 4, _CLONE[column]),
        (LOAD, 0, 0, ARGUMENTS_AT),
        (ANY_BIT, 0, 1, _NEW_NAMESPACES),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
        (EQUAL, 0, count + 2, _SOCKET[column]),
        (LOAD, 0, 0, ARGUMENTS_AT),
        *((EQUAL, count - i, 0, family) for i, family in enumerate(_FAMILIES)),
        (RETURN, 0, 0, ERRNO | errno.EAFNOSUPPORT),
        (RETURN, 0, 0, ALLOW),
    ]
    return packed(code)
