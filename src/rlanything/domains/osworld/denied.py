"""The system calls that nothing in a desktop may make, as a filter for bubblewrap.

A list of what is refused, where the sandbox of programs has one of what is allowed: browsers and
office suites use too much of the kernel. Refused are namespaces and mounts, other processes'
memory, keys and the kernel's log, which no namespace holds, and memory that no limit of ours would
count. What takes a capability needs no line: a desktop has none.
"""

from __future__ import annotations

import errno
import os
import struct

from rlanything.domains.base import DomainError

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# Numbers for x86-64 and aarch64 (None: has none).
_REFUSED: dict[str, tuple[int | None, int | None]] = {
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
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
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
# Programs then do without, as on a kernel that lacks them.
_UNKNOWN: dict[str, tuple[int | None, int | None]] = {
    "clone3": (435, 435),  # its flags lie in memory, where a filter cannot look
    "memfd_create": (319, 279),  # no process is charged for it, and no file system's size ends it
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
"""AF_UNIX, INET, INET6 and NETLINK, which are the desktop's own. AF_VSOCK would reach the host that
a virtual machine runs on, whatever the network namespace."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_X32 = 0x40000000


def syscall_filter() -> bytes:
    """Returns the compiled filter (classic BPF), as `bwrap --seccomp` reads it.

    Raises `DomainError` on a machine that is neither x86-64 nor aarch64."""
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise DomainError(f"no desktop on {machine}: use a machine with x86-64 or aarch64")
    architecture, column = _ARCHITECTURES[machine]
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]
    for calls, reason in ((_REFUSED, errno.EPERM), (_UNKNOWN, errno.ENOSYS)):
        for numbers in calls.values():
            number = numbers[column]
            if number is not None:
                code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | reason)]
    count = len(_FAMILIES)
    code += [
        (_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _ARGUMENT_AT),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, count + 2, _SOCKET[column]),
        (_LOAD, 0, 0, _ARGUMENT_AT),
        *((_EQUAL, count - i, 0, family) for i, family in enumerate(_FAMILIES)),
        (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
