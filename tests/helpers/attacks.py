"""Hostile programs, as data: what each shows where nothing contains it, and what it may end in.

A program that gets what it wants prints REACHED, does not end, or dies by a signal. `$names` are
filled in with things of the host that it may want (`stage.Stage`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from rlanything_coding.sandbox.base import Limits, Verdict

REACHED = "REACHED"
MEGABYTES = 300
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=2.0, memory_mb=256, output_bytes=2**20)

ENDED = (Verdict.OK, Verdict.ERROR)


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    program: str
    effect: Literal["says", "hangs", "dies", "passes"] = "says"
    """What happens where nothing contains it; "passes": a naive harness calls it right."""
    boxed: tuple[Verdict, ...] = ENDED
    """The verdicts it may get in a box, where the effect is never seen."""
    needs_root: bool = False
    """Whether the effect without a box takes root."""
    limits: Limits = LIMITS

    def __post_init__(self) -> None:
        """Where time is not what ends it, there is plenty: a busy machine must not end it first."""
        if Verdict.TIMEOUT not in self.boxed:
            patient = replace(self.limits, cpu_seconds=10.0, wall_seconds=40.0)
            object.__setattr__(self, "limits", patient)


def tries(name: str, body: str, needs_root: bool = False) -> Attack:
    """Reached when nothing was raised."""
    return Attack(name, f"{body}\nprint('REACHED')", needs_root=needs_root)


def asks_kernel(
    name: str, x86: int, arm: int, arguments: str, setup: str = "", needs_root: bool = False
) -> Attack:
    """Reached when the kernel deals with the system call, if only to find fault with it."""
    program = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
{setup}
number = {arm} if os.uname().machine == "aarch64" else {x86}
done = libc.syscall(number, {arguments})
fault = ctypes.get_errno()
if done == -1 and fault == 38:
    print("ABSENT")
print("REACHED" if done != -1 or fault not in (1, 13, 38) else "refused")
"""
    return Attack(name, program, boxed=(Verdict.OK,), needs_root=needs_root)


BUFFER = "room = ctypes.create_string_buffer(4096)"

RESOURCES = [
    Attack(
        "fork bomb",  # that stops at eight
        "import os\nfor _ in range(8):\n    if os.fork() == 0: os._exit(0)\n"
        "for _ in range(8): os.wait()\nprint('REACHED')",
        boxed=(Verdict.ERROR,),
    ),
    Attack(
        "thread bomb",
        "import threading\nstop = threading.Event()\nalive = []\n"
        "try:\n    for _ in range(100):\n"
        "        alive.append(threading.Thread(target=stop.wait))\n"
        "        alive[-1].start()\n    print('REACHED')\nfinally: stop.set()",
        boxed=(Verdict.ERROR,),
        limits=replace(LIMITS, memory_mb=1024),
    ),
    *(
        Attack(name, f"M = {MEGABYTES} * 2**20\n{body}\nprint('REACHED')", boxed=tuple(verdicts))
        for name, body, *verdicts in (
            ("memory by one array", "x = bytearray(M)", Verdict.MEMORY),
            ("memory bit by bit", "x = [bytearray(65536) for _ in range(M >> 16)]", Verdict.MEMORY),
            ("memory by a string", "x = 'x' * M", Verdict.MEMORY),
            ("memory by a number", "x = 1 << (8 * M)", Verdict.MEMORY),
            ("memory by a dict", "x = dict.fromkeys(range(M // 64))", Verdict.MEMORY),
            ("memory by a mapping", "import mmap\nx = mmap.mmap(-1, M)", Verdict.ERROR),
            (
                "memory after raising its limit",
                "import resource as r\nu = r.RLIM_INFINITY\n"
                "try: r.setrlimit(r.RLIMIT_AS, (u, u))\nexcept (OSError, ValueError): pass\n"
                "x = bytearray(M)",
                Verdict.MEMORY,
            ),
            (
                "memory in threads",
                "import threading\nx = []\nts = [threading.Thread(target=lambda: "
                "x.append(bytearray(M // 8))) for _ in range(8)]\n[t.start() for t in ts]\n"
                "[t.join() for t in ts]\nassert len(x) == 8",
                Verdict.MEMORY,
                Verdict.ERROR,
            ),
        )
    ),
    tries("memory in a memfd", "import os\nf = os.memfd_create('x')\nos.write(f, b'x' * 2**20)"),
    tries(
        "memory in shared memory",
        "from multiprocessing.shared_memory import SharedMemory\n"
        "m = SharedMemory(create=True, size=2**20)\nm.close()\nm.unlink()",
    ),
    tries(
        "memory in pipes",
        "import fcntl, os\nfor _ in range(8):\n    r, w = os.pipe()\n"
        "    fcntl.fcntl(w, 1031, 2**20)\n    os.write(w, bytes(2**20))",
    ),
    Attack(
        "huge source",
        "x = lambda a: [" + "a," * 2**20 + "]\nprint('REACHED')",
        boxed=(Verdict.MEMORY, Verdict.TIMEOUT),
        limits=replace(LIMITS, memory_mb=128),
    ),
    *(
        Attack(name, f"{body}\nprint('REACHED')", boxed=(Verdict.OUTPUT,))
        for name, body in (
            ("stdout bomb", "for _ in range(64): print('x' * 2**16)"),
            (
                "stdout bomb that goes on",
                "import os\nleft = 2**22\nwhile left: left -= os.write(1, b'x' * min(left, 2**16))",
            ),
            (
                "stderr bomb",
                "import os\nleft = 2**22\nwhile left: left -= os.write(2, b'x' * min(left, 2**16))",
            ),
        )
    ),
    Attack(
        "sparse stdout",
        "import os\nos.ftruncate(1, 2**21)\nos.lseek(1, 0, 2)\nprint('REACHED')",
        boxed=(Verdict.ERROR,),
    ),
    Attack(
        "CPU bomb",
        "import time\nwhile time.process_time() < 1: pass\nprint('REACHED')",
        boxed=(Verdict.TIMEOUT,),
    ),
    Attack(
        "CPU bomb deaf to signals",
        "import signal, time\nfor each in signal.valid_signals():\n"
        "    try: signal.signal(each, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        "while time.process_time() < 1: pass\nprint('REACHED')",
        boxed=(Verdict.TIMEOUT,),
    ),
    Attack("endless loop", "while True: pass", "hangs", (Verdict.TIMEOUT,)),
    Attack("endless regex", "import re\nre.match('(a*)*b', 'a' * 60)", "hangs", (Verdict.TIMEOUT,)),
    Attack("endless power", "print(7 ** 7 ** 9)", "hangs", (Verdict.TIMEOUT, Verdict.MEMORY)),
    Attack("endless sleep", "import time\ntime.sleep(60)", "hangs", (Verdict.TIMEOUT,)),
    Attack(
        "a thread that never ends",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
        "hangs",
        (Verdict.TIMEOUT,),
    ),
    Attack(
        "an end that never ends",
        "import atexit, time\natexit.register(time.sleep, 60)",
        "hangs",
        (Verdict.TIMEOUT,),
    ),
    Attack("stops itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", "hangs"),
    # Where it may set this limit the kernel ends it, with the signal of a fault of the box.
    *(
        Attack(
            f"CPU limit of {soft} and {hard} s by {call}",
            "import ctypes, os, resource\nlibc = ctypes.CDLL(None)\n"
            "arm = os.uname().machine == 'aarch64'\n"
            f"pair = (ctypes.c_ulong * 2)({soft}, {hard})\n{body}\nwhile True: pass",
            "dies",
            boxed,
            limits=replace(LIMITS, cpu_seconds=1.5, wall_seconds=8.0),
        )
        for call, body, boxed in (
            ("Python", "resource.setrlimit(0, tuple(pair))", (Verdict.ERROR,)),
            ("setrlimit", "libc.setrlimit(0, pair)", (Verdict.TIMEOUT,)),
            ("prlimit64", "libc.syscall(261 if arm else 302, 0, 0, pair, 0)", (Verdict.TIMEOUT,)),
            ("its number", "libc.syscall(164 if arm else 160, 0, pair)", (Verdict.TIMEOUT,)),
        )
        for soft, hard in ((0, 0), (0, 1), (1, 1))
        if call == "Python" or (soft, hard) == (0, 0)
    ),
    Attack("waits for a signal", "import signal\nsignal.pause()", "hangs", (Verdict.TIMEOUT,)),
    *(
        Attack(name, body, "dies", (Verdict.ERROR,))
        for name, body in (
            ("null pointer", "import ctypes\nctypes.string_at(0)"),
            ("kills itself", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"),
            ("aborts", "import os\nos.abort()"),
            (
                "deep recursion",
                "import sys\nsys.setrecursionlimit(10**8)\nclass A:\n"
                "    def __repr__(self): return repr(self)\nrepr(A())",
            ),
        )
    ),
    tries(
        "fills its user's queue of signals",
        "import signal, threading\nsignal.pthread_sigmask(signal.SIG_BLOCK, [40])\n"
        "for _ in range(1000): signal.pthread_kill(threading.get_ident(), 40)",
    ),
    tries(
        "POSIX timers",
        "import ctypes\nlibc = ctypes.CDLL('librt.so.1')\nt = ctypes.c_void_p()\n"
        "assert libc.timer_create(0, None, ctypes.byref(t)) == 0",
    ),
]

FILES = [
    tries("reads /etc/passwd", "assert 'root' in open('/etc/passwd').read()"),
    tries("reads a secret", "assert open('$secret').read() == '$token'"),
    tries("reads its harness's expected output", "open('$expected').read()"),
    tries("reads the environment", "import os\nassert os.environ['TOKEN'] == '$token'"),
    tries("reads the host's environment", "assert b'=' in open('/proc/self/environ', 'rb').read()"),
    tries("reads process 1", "open('/proc/1/cmdline').read()"),
    tries("reads its memory map", "open('/proc/self/maps').read()"),
    tries("opens its memory", "open('/proc/self/mem', 'r+b')"),
    tries("walks descriptors", "import os\nos.listdir('/proc/self/fd')"),
    tries("lists the host", "import os\nassert 'etc' in os.listdir('/')"),
    tries("lists homes", "import os\nos.listdir('/home')"),
    tries("lists devices", "import os\nassert os.listdir('/dev')"),
    tries("lists the kernel's settings", "import os\nassert os.listdir('/sys')"),
    tries("climbs out of its folder", "open('../../../../../../etc/passwd').read()"),
    tries("writes /tmp", "open('/tmp/rlanything-attack-$token', 'w').write('x')"),
    tries("writes its folder", "open('attack', 'w').write('x')"),
    tries("writes the root", "open('/attack-$token', 'w').close()", needs_root=True),
    tries("changes a secret", "open('$secret', 'a').close()"),
    tries(
        "writes the standard library",
        "import os\nopen(os.__file__, 'r+b').close()",
        needs_root=True,
    ),
    tries("makes a folder", "import os\nos.mkdir('folder')"),
    tries("makes a symbolic link", "import os\nos.symlink('/etc', 'link')"),
    tries("makes a hard link", "import os\nos.link('$secret', 'hard')"),
    tries("makes a FIFO", "import os\nos.mkfifo('fifo')"),
    tries("changes a mode", "import os\nos.chmod('$secret', 0o666)"),
    tries("deletes", "import os\nos.remove('$victim_file')"),
    tries("opens a temporary file", "import tempfile\ntempfile.TemporaryFile()"),
]

NETWORK = [
    tries("TCP", "import socket\nsocket.create_connection(('127.0.0.1', $port), 2)"),
    tries("TCP server", "import socket\nsocket.create_server(('127.0.0.1', 0))"),
    tries(
        "UDP",
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.sendto(b'x', ('127.0.0.1', $port))",
    ),
    tries("Unix socket", "import socket\nsocket.socket(socket.AF_UNIX).connect('$socket')"),
    tries(
        "abstract socket", "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0$abstract')"
    ),
    tries("names", "import socket\nsocket.getaddrinfo('localhost', 80)"),
    tries(
        "HTTP",
        "from http.client import HTTPConnection\n"
        "HTTPConnection('127.0.0.1', $port, timeout=2).connect()",
    ),
    tries("netlink", "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)"),
    tries(
        "packets",
        "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        needs_root=True,
    ),
    tries(
        "datagrams out of a pair",
        "import socket\na, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "c = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\nc.bind('')\n"
        "a.sendto(b'x', c.getsockname())",
    ),
]

PROCESSES = [
    tries("signals its parent", "import os\nassert os.getppid()\nos.kill(os.getppid(), 0)"),
    tries("signals everybody", "import os\nos.kill(-1, 0)"),
    tries("signals a process", "import os\nos.kill($victim, 0)"),
    tries("signals its group", "import os\nos.killpg(os.getpgrp(), 0)"),
    tries("signals its session", "import os\nos.killpg(os.getsid(0), 0)"),
    *(
        Attack(
            f"{name} to its group",
            f"import os, signal, time\nos.kill(0, {name})\ntime.sleep(60)",
            "hangs",
        )
        for name in ("signal.SIGSTOP", "signal.SIGTSTP")
    ),
    *(
        Attack(f"{name} to its group", f"import os, signal\nos.kill(0, {name})", "dies")
        for name in ("signal.SIGKILL", "signal.SIGTERM", "signal.SIGUSR1", "signal.SIGRTMAX")
    ),
    *(
        tries(
            f"has its group told by {name}",
            f"import fcntl, os, socket, struct\na, b = socket.socketpair()\n"
            f"group = struct.pack('i', -os.getpgrp())\n{body}",
        )
        for name, body in (
            ("F_SETOWN", "fcntl.fcntl(a, 8, -os.getpgrp())"),
            ("F_SETOWN_EX", "fcntl.fcntl(a, 15, struct.pack('ii', 2, os.getpgrp()))"),
            ("FIOSETOWN", "fcntl.ioctl(a, 0x8901, group)"),
            ("SIOCSPGRP", "fcntl.ioctl(a, 0x8902, group)"),
        )
    ),
    tries(
        "chooses the signal of its descriptors",
        "import fcntl, os\nfcntl.fcntl(os.pipe()[0], 10, 9)",
    ),
    tries("locks a file", "import fcntl, os\nfcntl.flock(os.open(os.__file__, 0), fcntl.LOCK_SH)"),
    tries(
        "locks a part of a file",
        "import fcntl, os\nfcntl.lockf(os.open(os.__file__, 0), fcntl.LOCK_SH)",
    ),
    asks_kernel("dies with its parent", 157, 167, "1, 9, 0, 0, 0"),
    asks_kernel("timer of a thread", 222, 107, "1, 0, room", BUFFER),
    asks_kernel("POSIX message queue", 240, 180, "b'rlanything', 0, 0, 0"),
    asks_kernel("queues a signal to a thread", 297, 240, "-1, -1, 40, room", BUFFER),
    asks_kernel("signals by descriptor", 424, 424, "-1, 0, 0, 0"),
    asks_kernel("its priority of input", 251, 30, "1, 0, 0x4000"),
    Attack(
        "wakes what waits on a file of the library",
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.mmap.restype = ctypes.c_void_p\nfile = os.open(os.__file__, os.O_RDONLY)\n"
        "page = ctypes.c_void_p(libc.mmap(None, 4096, 1, 1, file, 0))\n"
        "number = 98 if os.uname().machine == 'aarch64' else 202\n"
        "print('REACHED' if libc.syscall(number, page, 1, 1, 0, 0, 0) == 0 else 'refused')",
        boxed=(Verdict.OK,),
    ),
    tries("runs a shell", "import os\nassert os.system('true') == 0"),
    tries("runs a program", "import subprocess\nsubprocess.run(['true'], check=True)"),
    tries("spawns", "import os, sys\nos.posix_spawn(sys.executable, ['x', '-c', ''], {})"),
    Attack(
        "becomes a program",
        "import os, sys\nos.execv(sys.executable, ['python', '-c', 'print(\"REACHED\")'])",
        boxed=(Verdict.ERROR,),
    ),
    Attack(
        "becomes a file in memory",
        "import os, sys\nf = os.memfd_create('x', 0)\n"
        "os.write(f, b'#!/bin/sh\\necho REACHED\\n')\nos.execve(f, ['x'], {})",
        boxed=(Verdict.ERROR,),
    ),
    Attack(
        "leaves a daemon behind",
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        time.sleep(0.1)\n        print('REACHED', flush=True)\n    os._exit(0)\n"
        "time.sleep(1.5)",
        boxed=(Verdict.ERROR,),
    ),
    tries("multiprocessing", "import multiprocessing\nmultiprocessing.Pool(1).map(abs, [1])"),
    asks_kernel("clone", 56, 220, "17, 0, 0, 0, 0"),
    asks_kernel("clone with its memory", 56, 220, "0x80000000, 0, 0, 0, 0"),
    asks_kernel("clone3", 435, 435, "room, 0", BUFFER),
    asks_kernel("ptrace itself", 101, 117, "0, 0, 0, 0"),
    asks_kernel("ptrace a process", 101, 117, "0x4206, $victim, 0, 0"),
    asks_kernel("reads a process's memory", 310, 270, "os.getpid(), room, 0, room, 0, 0", BUFFER),
    asks_kernel("writes a process's memory", 311, 271, "os.getpid(), room, 0, room, 0, 0", BUFFER),
    asks_kernel("holds a process", 434, 434, "os.getpid(), 0"),
    asks_kernel("compares processes", 312, 272, "os.getpid(), os.getpid(), 1, 0, 0"),
    asks_kernel("another process's limits", 302, 261, "os.getppid() or 1, 7, 0, room", BUFFER),
    asks_kernel("queues a signal", 129, 138, "os.getpid(), 0, room", BUFFER),
    tries("chooses its core", "import os\nos.sched_setaffinity(0, os.sched_getaffinity(0))"),
    tries("is nice", "import os\nos.setpriority(os.PRIO_PROCESS, 0, 1)"),
    asks_kernel("chooses its scheduler", 144, 119, "0, 3, room", BUFFER),
]

KERNEL = [
    tries("becomes root", "import os\nos.setuid(0)", needs_root=True),
    tries("changes its user", "import os\nos.setresuid(1, 1, 1)", needs_root=True),
    tries("changes its groups", "import os\nos.setgroups([0])", needs_root=True),
    tries("changes its root", "import os\nos.chroot('/')", needs_root=True),
    asks_kernel("user namespace", 272, 97, "0x10000000"),
    asks_kernel("network namespace", 272, 97, "0x40000000", needs_root=True),
    asks_kernel("mount namespace", 272, 97, "0x00020000", needs_root=True),
    asks_kernel("enters a namespace", 308, 268, "-1, 0"),
    asks_kernel("mount", 165, 40, "0, 0, 0, 0, 0", needs_root=True),
    asks_kernel("umount", 166, 39, "b'/nowhere', 0", needs_root=True),
    asks_kernel("new mount", 430, 430, "b'nothing', 0", needs_root=True),
    asks_kernel("pivot_root", 155, 41, "b'/nowhere', b'/nowhere'", needs_root=True),
    asks_kernel("io_uring", 425, 425, "1, room", BUFFER),
    asks_kernel("adds a key", 248, 217, "b'user', b'k', b'x', 1, -1"),
    asks_kernel("asks for a key", 249, 218, "b'user', b'none', 0, -1"),
    asks_kernel("keyring", 250, 219, "0, -3, 1"),
    asks_kernel("bpf", 321, 280, "0, room, 0", BUFFER, needs_root=True),
    asks_kernel("perf_event_open", 298, 241, "0, 0, -1, -1, 0"),
    asks_kernel("userfaultfd", 323, 282, "1"),
    asks_kernel("fanotify", 300, 262, "0, 0", needs_root=True),
    asks_kernel("inotify", 294, 26, "0"),
    asks_kernel("module", 175, 105, "0, 0, b''", needs_root=True),
    asks_kernel("kexec", 246, 104, "0, 99, 0, 0", needs_root=True),
    asks_kernel("host name", 170, 161, "0, -1", needs_root=True),
    asks_kernel("swap", 167, 224, "b'/nowhere', 0", needs_root=True),
    asks_kernel("file handle", 304, 265, "-1, room, 0", BUFFER, needs_root=True),
    asks_kernel("splice", 275, 76, "-1, 0, -1, 0, 0, 0"),
    asks_kernel("personality", 135, 92, "0xffffffff"),
    asks_kernel("capabilities", 125, 90, "room, 0", "room = (ctypes.c_uint32 * 2)(0x20080522, 0)"),
    asks_kernel("another filter", 317, 277, "2, 0, room", BUFFER),
    asks_kernel("dumpable", 157, 167, "4, 1, 0, 0, 0"),
    asks_kernel("System V memory", 29, 194, "0, 4096, 0o1600"),
    asks_kernel("message queue", 68, 186, "0, 0o1600"),
    asks_kernel("memory file", 319, 279, "b'x', 0"),
    asks_kernel("secret memory", 447, 447, "0"),
    asks_kernel("locks memory", 149, 228, "0, 0"),
    asks_kernel("memory policy", 238, 237, "0, 0, 0"),
    asks_kernel("landlock", 444, 444, "0, 0, 1"),
    asks_kernel("terminal input", 16, 29, "0, 0x5412, b'x'"),
]

INHERITED = Attack(
    "inherited descriptors",
    "import os\nfor each in range(3, 64):\n"
    "    try: found = os.pread(each, 99, 0)\n    except OSError: continue\n"
    "    if found: print('REACHED')",
    boxed=(Verdict.OK,),
)

HARNESS = [
    Attack(name, program, "passes", (Verdict.WRONG, Verdict.ERROR))
    for name, program in (
        (
            "finds the answer in its caller",
            "import sys\nframe = sys._getframe()\nwhile frame:\n"
            "    for names in (frame.f_locals, frame.f_globals):\n"
            "        if 'expected' in names:\n            print(names['expected'])\n"
            "            raise SystemExit\n    frame = frame.f_back",
        ),
        (
            "finds the answer in memory",
            "import gc\nfor each in gc.get_objects():\n"
            "    if isinstance(each, dict) and isinstance(each.get('expected'), str):\n"
            "        print(each['expected'])\n        break",
        ),
        ("finds the answer in the arguments", "import sys\nprint(sys.orig_argv[-1])"),
        ("replaces the comparison", "import __main__\n__main__.same = lambda *_: True"),
        (
            "replaces the comparison in every module",
            "import sys\nfor each in list(sys.modules.values()):\n"
            "    if hasattr(each, 'same'): each.same = lambda *_: True",
        ),
        ("replaces a builtin", "import builtins\nbuiltins.list = lambda _: 1"),
        (
            "forges the verdict",
            "import os\nfor each in range(3, 64):\n    try: os.write(each, b'passed')\n"
            "    except OSError: pass\nos._exit(0)",
        ),
        (
            "forges the verdict at its end",
            "import atexit, os\n@atexit.register\ndef forge():\n    for each in range(3, 64):\n"
            "        try: os.write(each, b'passed')\n        except OSError: pass\n"
            "    os._exit(0)\nclass Stop(BaseException): pass\nraise Stop",
        ),
        (
            "forges the verdict from a thread",
            "import os, threading\ndef forge():\n    for each in range(3, 64):\n"
            "        try: os.write(each, b'passed')\n        except OSError: pass\n"
            "t = threading.Thread(target=forge)\nt.start()\nt.join()\nos._exit(0)",
        ),
        (
            "an output that finds the answer",
            "import sys\nclass Out:\n    def write(self, _): pass\n    def flush(self): pass\n"
            "    def getvalue(self): return sys._getframe(1).f_globals['expected']\n"
            "sys.stdout = Out()",
        ),
        (
            "traces its harness",
            "import sys\ndef trace(frame, event, argument):\n"
            "    if 'expected' in frame.f_globals: frame.f_globals['expected'] = ''\n"
            "    return trace\nsys.settrace(trace)\nsys._getframe(1).f_trace = trace\n"
            "sys.setprofile(trace)",
        ),
        (
            "replaces the end",
            "import os\nos._exit = lambda *_: None\nimport __main__\n"
            "__main__.verdict = lambda *_: b'passed'",
        ),
        (
            "reads the answer from a descriptor",
            "import os\nfor each in range(3, 64):\n"
            "    try: found = os.pread(each, 999, 0).decode()\n    except OSError: continue\n"
            "    if len(found) < 99: print(found.removeprefix('$token'))",
        ),
    )
]

ATTACKS = [*RESOURCES, *FILES, *NETWORK, *PROCESSES, *KERNEL, INHERITED, *HARNESS]
