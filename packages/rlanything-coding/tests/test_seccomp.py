"""The filter answers every system call as the table says."""

from __future__ import annotations

import errno
import struct

import pytest

from rlanything_coding.sandbox.base import SandboxUnavailable
from rlanything_coding.sandbox.seccomp import compile_filter
from rlanything_coding.sandbox.syscalls import ALLOWED, CHECKED

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, UNKNOWN = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
AGAIN = 0x50000 | errno.EAGAIN
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


def answer(code: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Interprets the filter as the kernel does."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, architecture, 0, *padded)
    instructions = list(struct.iter_unpack("<HBBI", code))
    at = value = 0
    while True:
        operation, true, false, operand = instructions[at]
        at += 1
        match operation:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, operand)
            case 0x06:
                return operand
            case 0x05:
                at += operand
            case _:
                test = {
                    0x15: value == operand,
                    0x35: value >= operand,
                    0x45: bool(value & operand),
                }[operation]
                at += true if test else false


@pytest.mark.parametrize("machine", MACHINES)
def test_every_number_gets_the_answer_of_the_table(machine: str) -> None:
    code = compile_filter(machine)
    architecture, column = MACHINES[machine]
    allowed = {numbers[column] for numbers in ALLOWED.values()}
    checked = {numbers[column] for numbers in CHECKED.values()}
    numbers: list[int] = [*range(1024), 2**30, 2**30 + 1, 2**31, 2**32 - 1]
    for number in numbers:
        if number not in checked:
            expected = ALLOW if number in allowed else REFUSE
            assert answer(code, architecture, number) == expected, number
    other = next(each for name, (each, _) in MACHINES.items() if name != machine)
    assert answer(code, other, 0) == KILL
    assert len(code) // 8 < 4096  # the kernel's limit


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (0x3D0F00,), ALLOW),  # a thread of glibc's
        ("clone", (0x7D0F00,), ALLOW),  # and of musl's
        ("clone", (0x3D0F00 & ~0x400,), REFUSE),  # with descriptors of its own
        ("clone", (17,), REFUSE),  # fork
        ("clone", (0x4111,), REFUSE),  # vfork
        ("clone", (0x3D0F00 | 0x10000000,), REFUSE),  # in a new user namespace
        ("clone3", (0, 0), UNKNOWN),
        ("kill", (1, 15), ALLOW),
        ("kill", (1, 9), KILL),
        ("kill", (0, 19), REFUSE),  # its group
        ("kill", (2**32, 19), REFUSE),  # the kernel reads an int
        ("kill", (2**32 - 1, 19), REFUSE),  # everybody
        ("kill", (2**64 - 5, 9), REFUSE),  # another group
        ("kill", (2**31, 15), REFUSE),
        ("futex", (0, 128), ALLOW),  # FUTEX_WAIT, private
        ("futex", (0, 128 + 9 + 256), ALLOW),
        ("futex", (0, 0), AGAIN),
        ("futex", (0, 1), AGAIN),
        ("futex", (0, 2**32 + 1), AGAIN),
        ("tgkill", (1, 1, 9), KILL),
        ("tkill", (1, 9), KILL),
        ("fcntl", (0, 1030), ALLOW),
        ("fcntl", (0, 1031), REFUSE),  # F_SETPIPE_SZ
        ("fcntl", (0, 8), REFUSE),  # F_SETOWN
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), REFUSE),  # TIOCSTI
        ("prctl", (15,), ALLOW),
        ("prctl", (22,), REFUSE),  # PR_SET_SECCOMP
        ("prlimit64", (0, 7), ALLOW),
        ("prlimit64", (7, 7), REFUSE),
        ("prlimit64", (0, 7, 1), ALLOW),
        ("prlimit64", (0, 0), ALLOW),  # RLIMIT_CPU: read, but not set
        ("prlimit64", (0, 0, 1), REFUSE),
        ("prlimit64", (0, 0, 2**32), REFUSE),
        ("prlimit64", (0, 2**32, 1), REFUSE),  # the kernel reads an int
        ("prlimit64", (0, 15, 1), REFUSE),  # RLIMIT_RTTIME
        ("prlimit64", (0, 15), ALLOW),
        ("setrlimit", (0, 1), REFUSE),
        ("setrlimit", (2**32, 1), REFUSE),
        ("setrlimit", (15, 1), REFUSE),
        ("setrlimit", (3, 1), ALLOW),  # RLIMIT_STACK
        ("setrlimit", (9, 1), ALLOW),  # RLIMIT_AS
        ("socketpair", (1, 1), ALLOW),
        ("socketpair", (2, 1), REFUSE),
        ("sendto", (3, 4, 5, 0, 0), ALLOW),
        ("sendto", (3, 4, 5, 0, 6), REFUSE),
        ("sendto", (3, 4, 5, 0, 2**32), REFUSE),
    ],
)
def test_arguments_are_checked(
    machine: str, name: str, arguments: tuple[int, ...], expected: int
) -> None:
    architecture, column = MACHINES[machine]
    number = CHECKED[name][column]
    assert number is not None
    assert answer(compile_filter(machine), architecture, number, *arguments) == expected


def test_no_call_is_in_both_tables_and_no_number_stands_twice() -> None:
    assert not ALLOWED.keys() & CHECKED.keys()
    for column in (0, 1):
        numbers = [each[column] for each in (*ALLOWED.values(), *CHECKED.values())]
        real = [each for each in numbers if each is not None]
        assert len(real) == len(set(real))


def test_an_unknown_machine_is_refused_in_one_line() -> None:
    with pytest.raises(SandboxUnavailable, match="riscv64: run it on x86-64 or aarch64"):
        compile_filter("riscv64")
