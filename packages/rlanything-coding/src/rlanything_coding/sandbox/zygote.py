"""The process inside a box: a warmed-up Python that becomes a program by forking.

Its source is passed to the interpreter with -c, so it imports nothing from the library. For every
run it receives the limits and four descriptors (program, stdin, stdout, stderr). It reads none of
them: only the fork does, after it has given up everything else.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import gc
import importlib
import io
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
import types
from typing import Any, NoReturn

REQUEST = struct.Struct("<dd4Q")
"""CPU seconds, wall seconds; bytes of address space, bytes of output, threads, CPU seconds after
which the kernel steps in."""
REPLY = struct.Struct("<iBddQ")
"""Status from wait; 1 if the CPU time ran out, 2 if the wall time did; wall and CPU seconds;
KiB."""

NEW_PID_NAMESPACE = 0x20000000
SET_DUMPABLE, SET_SECCOMP, FILTER = 4, 22, 2
CAPSET = {"x86_64": 126, "aarch64": 91}
CAPABILITIES_VERSION = 0x20080522

PLACE = "/box/program.py"
"""Name of the program's file, which does not exist."""
STREAMS = ("/dev/stdin", "/dev/stdout", "/dev/stderr")
plain_open = open

Limits = tuple[float, float, int, int, int, int]

libc = ctypes.CDLL(None, use_errno=True)


class Program(ctypes.Structure):
    """The kernel's `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def checked(result: int, what: str) -> None:
    """Raises `OSError` for a libc call that failed."""
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def serve(channel: socket.socket, capset: int) -> Program:
    """Supervises runs until the host closes the connection. Returns in the fork of a run, ready to
    begin."""
    config = json.loads(channel.recv(65536))
    code = bytes.fromhex(config["filter"])
    program = Program(len(code) // 8, code)
    sys.path += config["path"]
    for name in config["imports"]:
        importlib.import_module(name)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.clear()
    # Created here once for all runs: they are bound to descriptor numbers, which each fork points
    # to its run's files.
    os.dup2(1, 2)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, stream(number, name))
        setattr(sys, f"__{name}__", getattr(sys, name))
    myself = os.pidfd_open(os.getpid())
    gc.collect()
    gc.freeze()
    channel.send(b"ready")
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, REQUEST.size, 4)
        if not request:
            os._exit(0)
        limits: Limits = REQUEST.unpack(request)
        began = time.monotonic()
        # The namespace applies only to the next child; then switch back, or the second could not be
        # made.
        checked(libc.unshare(NEW_PID_NAMESPACE), "unshare")
        pid = os.fork()
        if pid == 0:
            channel.close()  # close it first, whatever its number
            confine(descriptors, limits, capset)
            return program
        checked(libc.setns(myself, NEW_PID_NAMESPACE), "setns")
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(supervise(pid, began, limits, channel))


def supervise(pid: int, began: float, limits: Limits, channel: socket.socket) -> bytes:
    """Waits for a run, and ends it if it takes too long or the host is gone."""
    cpu_limit, wall_limit = limits[:2]
    clock = (~pid << 3) | 2  # the process's CPU clock, computed like clock_getcpuclockid does
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(channel, 0)  # no events: it still reports when the other end is closed
    exceeded = 0
    left = min(cpu_limit, wall_limit)
    while not exceeded:
        ready = poll.poll(max(1.0, left * 1000))
        if any(descriptor != handle for descriptor, _ in ready):
            os.kill(pid, signal.SIGKILL)
            os._exit(0)
        if ready:
            break
        cpu_left = cpu_limit - time.clock_gettime(clock)
        wall_left = began + wall_limit - time.monotonic()
        left = min(cpu_left, wall_left)
        exceeded = 1 if cpu_left <= 0 else 2 if wall_left <= 0 else 0
    if exceeded:
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    os.close(handle)
    cpu = usage.ru_utime + usage.ru_stime
    seconds = time.monotonic() - began
    return REPLY.pack(status, exceeded, seconds, cpu, usage.ru_maxrss)


def confine(descriptors: list[int], limits: Limits, capset: int) -> None:
    """Leaves the forked process only its four descriptors and its limits, without capabilities."""
    # Its own session and process group: those of the zygote have members outside the run's PID
    # namespace, which a signal to the group would reach.
    os.setsid()
    _, _, memory, output, threads, cpu = limits
    program, *streams = descriptors
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.dup2(program, 3)
    os.closerange(4, 64)
    header = struct.pack("<Ii", CAPABILITIES_VERSION, 0)
    checked(libc.syscall(capset, header, bytes(24)), "capset")
    # No core dump: the host may collect it through a pipe, regardless of RLIMIT_CORE.
    checked(libc.prctl(SET_DUMPABLE, 0), "dumpable")
    for kind, amount in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, output + 1),
        # The zygote and the first process of the box belong to the same user.
        (resource.RLIMIT_NPROC, threads + 2),
        # All processes of a user, including the host's, share the kernel's queue of signals.
        (resource.RLIMIT_SIGPENDING, 64),
    ):
        resource.setrlimit(kind, (amount, amount))
    # Programs that recurse deeply raise this limit themselves; RLIMIT_AS counts the stack as well.
    most = resource.getrlimit(resource.RLIMIT_STACK)[1]
    usual = 64 * 2**20
    stack = usual if most == resource.RLIM_INFINITY else min(usual, most)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, most))


def begin(program: Program) -> tuple[types.CodeType, dict[str, Any]]:
    """Closes the box. Returns the program's code and its initial names."""
    checked(libc.prctl(SET_SECCOMP, FILTER, ctypes.byref(program)), "seccomp")
    with plain_open(3, "rb", buffering=0) as file:
        source = file.read()
    sys.argv[:] = ["program.py"]
    sys.orig_argv[:] = ["python3", "-I", "program.py"]
    main: Any = types.ModuleType("__main__")
    main.__file__ = PLACE
    main.__cached__ = None
    main.__dict__["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    gc.enable()
    return compile(source, PLACE, "exec", dont_inherit=True), main.__dict__


def stream(number: int, name: str) -> io.TextIOWrapper:
    """Returns a standard stream like the interpreter's own."""
    mode = "wb" if number else "rb"
    buffer: Any = plain_open(number, mode, closefd=False)
    buffer.raw.name = f"<{name}>"
    text: Any = io.TextIOWrapper(
        buffer,
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "surrogateescape",
        newline="\n",
        line_buffering=number == 2,
    )
    text.mode = mode[0]
    return text


def open_file(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    """Replaces the builtin `open`; a box provides the devices that programs open by name."""
    name = os.fspath(file) if isinstance(file, os.PathLike) else file
    if isinstance(name, str) and name in STREAMS:
        file = STREAMS.index(name)
        closefd = False
    elif name == os.devnull:
        null = io.BufferedRandom(Null())
        return null if "b" in mode else io.TextIOWrapper(null, encoding, errors, newline)
    return plain_open(file, mode, buffering, encoding, errors, newline, closefd, opener)


class Null(io.RawIOBase):
    """/dev/null, which accepts everything and stores nothing."""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0

    def readinto(self, buffer: Any) -> int:
        return 0

    def write(self, data: Any) -> int:
        return len(data)


def status_of(error: BaseException) -> int:
    """Reports an error that ended the program, and returns the exit status that the interpreter
    would use."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return int(error.code or 0) & 0xFF if abs(int(error.code or 0)) < 2**63 else 0xFF
        print(error.code, file=sys.stderr)
        return 1
    if isinstance(error, MemoryError):
        # A traceback would keep alive the objects that fill the memory.
        os.write(2, b"MemoryError\n")
        return 1
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    return 1


def flush_streams() -> bool:
    """Flushes stdout and stderr, or the objects that a program put in their place. Returns whether
    all succeeded."""
    flushed = True
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        if stream is not None and not is_closed(stream):
            try:
                stream.flush()
            except BaseException:
                flushed = False
    return flushed


def is_closed(stream: Any) -> bool:
    """Returns whether a stream is closed; a stream class written by the program may lack the
    attribute."""
    try:
        return bool(stream.closed)
    except BaseException:
        return False


def leave(status: int) -> NoReturn:
    """Ends the process like the interpreter does, as far as a program can tell."""
    flush_streams()  # one more time than seems necessary, as the interpreter does after a script
    try:
        threads = sys.modules.get("threading")
        if threads is not None:
            threads._shutdown()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    try:
        atexit._run_exitfuncs()
        flushed = flush_streams()
        # Objects that a program put in their place end first, and may still write to them.
        for name in ("stdout", "stderr"):
            setattr(sys, name, getattr(sys, f"__{name}__", None))
        # Drop the last reference to the program's names, so that their objects are finalized.
        sys.modules.pop("__main__", None)
        gc.collect()
        if not (flush_streams() and flushed):
            status = 120
    except BaseException:
        status = status or 120
    os._exit(status)


if __name__ == "__main__":
    gc.disable()
    builtins.open = io.open = open_file
    exit_status = 0
    # Not in a function: this leaves the program its full recursion depth, except for two calls.
    try:
        exec(*begin(serve(socket.socket(fileno=int(sys.argv[1])), CAPSET[os.uname().machine])))
    except BaseException as error:
        exit_status = status_of(error)
    leave(exit_status)
