"""Whatever is typed into a desktop stays in it: what the policy may try, and what comes of it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.desktops import WITHOUT_DESKTOP, desktop, said
from helpers.paths import ROOT
from rlanything_osworld.desktop import Desktop
from rlanything_osworld.machine import DesktopLost
from rlanything_osworld.watchdog import DesktopLimits

pytestmark = WITHOUT_DESKTOP

CALL = "python3 -c 'import ctypes; l = ctypes.CDLL(None, use_errno=True); "
CALL += "print(l.syscall({}), ctypes.get_errno())'"


@pytest.fixture(scope="module")
def shared() -> Iterator[Desktop]:
    limits = DesktopLimits(home_mb=64, process_memory_mb=1024, processes=200)
    with desktop(limits) as machine:
        yield machine


# A command, and what it must print for all its power.
CONTAINED = {
    "the host's root": ("ls /root /work /home", "cannot access '/root'"),
    "the project": (f"cat {ROOT}/pyproject.toml", "No such file"),
    "the host's passwords": ("cat /etc/shadow", "No such file"),
    "the host's users": ("wc -l < /etc/passwd", "1\n"),
    "the host's files by a link": ("ln -sf /proc/1/root/root /tmp/r; ls /tmp/r/", "No such file"),
    "the host's home by the first process": ("ls /proc/1/cwd/../root", "No such file"),
    "packets to the world": (
        "curl -m 3 -sS http://1.1.1.1 || python3 -c 'import socket; "
        'socket.create_connection(("1.1.1.1", 80), 3)\'',
        "nreachable",
    ),
    "another network": ("ls /sys/class/net || cat /proc/net/dev | wc -l", "3\n"),
    "the machine below": (
        "python3 -c 'import socket; socket.socket(40, 1).connect((2, 1024))'",
        "not supported",
    ),
    "raw packets": ("python3 -c 'import socket; socket.socket(17, 3)'", "not supported"),
    "a network of its own making": (
        "ip link add x type dummy; ip a add 1.2.3.4/8 dev lo",
        "not permitted",
    ),
    "a mount": ("mount -t tmpfs none /mnt", "must be superuser"),
    "a mount by system call": (CALL.format('165, b"none", b"/tmp", b"tmpfs", 0, 0'), "-1 1\n"),
    "a user namespace": ("unshare --user true", "not permitted"),
    "another's namespace": ("nsenter --target 1 --net true", "not permitted"),
    "another root": ("python3 -c 'import os; os.chroot(\"/tmp\")'", "not permitted"),
    "another process's memory": (CALL.format("101, 16, 1, 0, 0"), "-1 1\n"),
    "reading another's memory": (CALL.format("310, 1, 0, 0, 0, 0, 0"), "-1 1\n"),
    "another's descriptors": (CALL.format("438, 3, 0, 0"), "-1 1\n"),
    "a key of the host's": (CALL.format('248, b"user", b"k", b"x", 1, -4'), "-1 1\n"),
    "the host's keys": (CALL.format("250, 0, -4, 1"), "-1 1\n"),
    "the kernel's log": (CALL.format("103, 3, 0, 0"), "-1 1\n"),
    "a program in the kernel": (CALL.format("321, 0, 0, 0"), "-1 1\n"),
    "the kernel's counters": (CALL.format("298, 0, 0, -1, -1, 0"), "-1 1\n"),
    "uncounted memory": (CALL.format('319, b"m", 0'), "-1 38\n"),
    "uncounted segments": (CALL.format("29, 0, 1000000000, 950"), "-1 1\n"),
    "new system calls": (CALL.format("425, 8, 0"), "-1 38\n"),
    "the system's programs": ("touch /usr/bin/x", "Read-only file system"),
    "the system's settings": ("echo x >> /etc/passwd", "denied"),
    "a file beside the limits": ("touch /x /dev/x /opt/x", "Read-only file system"),
    "the kernel's settings": ("echo x > /proc/sys/kernel/core_pattern", "denied"),
    "the kernel's caches": ("echo 1 > /proc/sys/vm/drop_caches", "denied"),
    "a device": ("mknod /tmp/disk b 254 0", "not permitted"),
    "root": ("su -c id; python3 -c 'import os; os.setuid(0)'", "OSError"),
    "a program of root's": (
        "find / -perm -4000 -exec {} \\; 2>/dev/null; grep NoNewPrivs /proc/self/status",
        "NoNewPrivs:\t1",
    ),
    "higher limits": ("ulimit -n 1000000", "Operation not permitted"),
    "a large process": ("python3 -c 'bytearray(2 * 1024**3)'", "MemoryError"),
    "a large file": ("head -c 200M /dev/zero > ~/full; echo $?", "1\n"),
    "a full /tmp": ("head -c 200M /dev/zero > /tmp/full; rm -f ~/full /tmp/full", "No space"),
    "the host's input": ("echo x >> /proc/1/fd/0; head -c 9 /proc/1/fd/0 | wc -c", "I/O error"),
    "a terminal of the host's": ("echo x > /dev/tty", "No such device"),
    "the first process": ("kill -9 1; kill -STOP 1; sleep 0.2; echo alive", "alive"),
    "a service of the host's": (
        "dbus-send --system --print-reply --dest=org.freedesktop.DBus / x.y",
        "Failed to open connection",
    ),
    "a folder of sockets": ("grep -c rlanything /proc/mounts", "0\n"),
}


@pytest.mark.parametrize("name", CONTAINED)
def test_a_hostile_command_reaches_nothing(shared: Desktop, name: str) -> None:
    command, answer = CONTAINED[name]
    printed = said(shared, command)
    assert answer in printed
    assert said(shared, "echo here") == "here\n"


def test_a_desktop_sees_only_its_own_processes(shared: Desktop) -> None:
    assert "pytest" not in said(shared, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert int(said(shared, "ls -d /proc/[0-9]* | wc -l")) < 40


def test_a_desktop_cannot_reach_what_the_host_listens_on(shared: Desktop) -> None:
    name = f"\0rlanything-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(name)
        local.listen()
        port = server.getsockname()[1]
        code = f'import socket; socket.create_connection(("127.0.0.1", {port}), 3)'
        assert "refused" in said(shared, f"python3 -c '{code}'")
        code = f'import socket; socket.socket(1).connect("\\0{name[1:]}")'
        assert "refused" in said(shared, f"python3 -c '{code}'")


def test_endless_windows_leave_a_screen_that_can_be_read(shared: Desktop) -> None:
    code = "import time; from Xlib.display import Display; d = Display(); r = d.screen().root\n"
    code += "for i in range(1000): r.create_window(0, 0, 9, 9, 0, 24, override_redirect=1).map()\n"
    code += "d.sync(); time.sleep(60)"
    shared.request("POST", "/setup/launch", {"command": ["python3", "-c", code]})
    time.sleep(1.0)
    assert len(shared.request("GET", "/tree", seconds=60.0)) < 10**6
    said(shared, "pkill -f override_redirect; sleep 0.2")


# Commands with which a desktop ends itself: the host notices, and nothing is left of it.
DEADLY = {
    "the server is killed": "pkill -9 -f server.py",
    "X is killed": "pkill -9 Xvfb",
    "everything is killed": "kill -9 -1",
    "the bus is killed": "pkill -9 -o dbus-daemon",
    "the window manager is killed": "pkill -9 openbox",
}


@pytest.mark.parametrize("command", DEADLY.values(), ids=DEADLY)
def test_a_desktop_that_ends_itself_is_lost(command: str) -> None:
    with desktop() as machine:
        began = time.monotonic()
        with pytest.raises(DesktopLost):
            repeated(lambda: said(machine, f"{command}; sleep 0.2", 5.0))
        assert time.monotonic() - began < 20
        with pytest.raises(DesktopLost):
            machine.request("GET", "/ready", seconds=5.0)


def test_a_server_that_is_stopped_costs_no_more_than_the_time_given() -> None:
    with desktop() as machine:
        # After a moment: this request is to be answered.
        command = "sleep 0.5; pkill -STOP -f server.py"
        machine.request("POST", "/setup/launch", {"command": command, "shell": True})
        began = time.monotonic()
        with pytest.raises(DesktopLost, match=r"no answer to /ready in 2 s"):
            repeated(lambda: machine.request("GET", "/ready", seconds=2.0))
        assert time.monotonic() - began < 15


def repeated(work: Callable[[], object]) -> None:
    """Calls something for up to ten seconds: what ends a desktop takes a moment."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        work()


def test_a_fork_bomb_stays_within_its_processes() -> None:
    with desktop(DesktopLimits(processes=120)) as machine:
        bomb = "b() { b | b & }; b; sleep 100"
        machine.request("POST", "/setup/launch", {"command": bomb, "shell": True})
        time.sleep(2.0)
        assert 0 < len(processes_below(machine.pid)) <= 140
        pid = machine.pid
    assert processes_below(pid) == []
    assert not Path(f"/proc/{pid}").exists()


LIMITS = {
    "memory": (
        DesktopLimits(memory_mb=400),
        "for i in 1 2 3 4 5 6; do python3 -c 'import time; x = b\"x\" * 10**8; time.sleep(60)' & "
        "done; wait",
        "more than 400 MiB",
    ),
    "files": (
        DesktopLimits(memory_mb=300),
        "head -c 400M /dev/zero > ~/full; sleep 60",
        "more than 300 MiB",
    ),
    "processor": (
        DesktopLimits(cpu_seconds=6),
        "while true; do :; done & while true; do :; done",
        "6 s of CPU time",
    ),
    "life": (DesktopLimits(wall_seconds=12), "sleep 60", "lived for 12 s"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_desktop_beyond_a_limit_is_ended_and_says_which(name: str) -> None:
    limits, command, reason = LIMITS[name]
    with desktop(limits) as machine, pytest.raises(DesktopLost, match=reason):
        said(machine, command, 60.0)


def processes_below(pid: int) -> list[int]:
    """The processes that a process has begun, and those that these have."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    below, open_pids = [], [pid]
    while open_pids:
        children = parents.get(open_pids.pop(), [])
        below += children
        open_pids += children
    return below
