"""Nothing that a program signals, stops or fills reaches what waits for it, and no box is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlanything_coding.sandbox import box, local
from rlanything_coding.sandbox.base import Job, Limits, Verdict
from rlanything_coding.sandbox.local import LocalExecutor

LIMITS = Limits(cpu_seconds=3, wall_seconds=3.0)
SIGNALS = ("SIGSTOP", "SIGKILL", "SIGTERM", "SIGUSR1", "SIGTSTP", "SIGTTIN", "SIGRTMIN", "SIGRTMAX")
STORM = f"""
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
kill = 129 if os.uname().machine == "aarch64" else 62
reached = []
for name in {SIGNALS!r}:
    number = int(getattr(signal, name))
    for target in (0, -1, -2, -os.getpgrp(), -os.getsid(0)):
        for said in (target, target & 0xffffffff, target & 0xffffffff | 1 << 40):
            if libc.syscall(kill, ctypes.c_long(said), number) == 0:
                reached.append((name, target))
print(reached)
"""


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor(1) as executor:
        yield executor


def test_a_program_has_a_session_and_a_group_of_its_own(executor: LocalExecutor) -> None:
    program = "import os\nprint(os.getpid(), os.getpgrp(), os.getsid(0))"
    assert executor.run(Job(program)).text == "1 1 1\n"


def test_no_signal_to_a_group_or_to_everybody_is_sent(executor: LocalExecutor) -> None:
    result = executor.run(Job(STORM, limits=LIMITS))
    assert (result.verdict, result.text) == (Verdict.OK, "[]\n")
    assert executor.restarts == 0


def test_a_program_that_signals_its_group_and_goes_on_costs_its_own_time() -> None:
    program = """
import os, signal, time
for send in (os.kill, os.killpg):
    try: send(0, signal.{name})
    except OSError: pass
time.sleep(30)
"""
    limits = Limits(wall_seconds=0.4)
    with LocalExecutor(4) as executor:
        executor.run_all([Job("")] * 4)
        began = time.monotonic()
        results = executor.run_all([Job(program.format(name=n), limits=limits) for n in SIGNALS])
        assert {each.verdict for each in results} == {Verdict.TIMEOUT}
        assert time.monotonic() - began < 20
        assert executor.restarts == 0


def test_a_program_that_dies_leaves_no_core_dump(executor: LocalExecutor) -> None:
    # RLIMIT_CORE is not asked where the host collects them through a pipe. The files of a process
    # that is not dumpable are root's, whoever runs it.
    thread = threading.Thread(target=executor.run, args=(Job("import time\ntime.sleep(2)"),))
    thread.start()
    [pid] = executor.box_pids()
    while len(processes := family(pid)) < 4 and thread.is_alive():
        time.sleep(0.01)
    time.sleep(0.5)
    assert os.stat(f"/proc/{processes[3]}/stat").st_uid == 0
    thread.join()


def family(pid: int) -> list[int]:
    """The processes of a box, the outermost first."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += family(int(child))
    return found


def running(group: int) -> list[int]:
    """The processes of a group, those that have ended and wait to be reaped apart."""
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if os.getpgid(int(place.name)) == group:
                state = (place / "stat").read_text().rpartition(")")[2].split()[0]
                found += [] if state in "ZX" else [int(place.name)]
    return found


def wait_for_the_end_of(group: int) -> None:
    deadline = time.monotonic() + 60
    while running(group) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert running(group) == []


@pytest.mark.parametrize("victim", range(3), ids=["monitor", "first process", "zygote"])
def test_a_box_that_is_stopped_from_outside_is_replaced_in_time(
    monkeypatch: pytest.MonkeyPatch, victim: int
) -> None:
    monkeypatch.setattr(box, "GRACE_SECONDS", 0.3)
    with LocalExecutor(1) as executor:
        [pid] = executor.box_pids()
        os.kill(family(pid)[victim], signal.SIGSTOP)
        began = time.monotonic()
        result = executor.run(Job("print(42)", expected="42", limits=LIMITS))
        assert time.monotonic() - began < 20
        assert result.verdict is Verdict.OK
    wait_for_the_end_of(pid)


def test_a_program_under_which_every_box_stops_has_failed_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(box, "GRACE_SECONDS", 1.0)
    monkeypatch.setattr(local, "EXTRA_SECONDS", 3.0)
    job = Job("import time\ntime.sleep(60)", limits=Limits(wall_seconds=2.0))
    over, stopped = threading.Event(), set[int]()
    with LocalExecutor(1) as executor:

        def stop() -> None:
            while not over.wait(0.01):
                for pid in executor.box_pids():
                    with contextlib.suppress(OSError):
                        processes = family(pid)
                        # Two boxes, for as many tries as there is time.
                        if len(processes) == 4 and len(stopped | {pid}) <= 2:
                            stopped.add(pid)
                            os.kill(processes[2], signal.SIGSTOP)

        thread = threading.Thread(target=stop)
        thread.start()
        began = time.monotonic()
        result = executor.run(job)
        over.set()
        thread.join()
        assert result.verdict is Verdict.ERROR
        assert "no answer within" in result.reason
        assert result.reason.endswith("; another program ran")
        assert time.monotonic() - began < 30


HOST = """
import os
from rlanything_coding.sandbox.base import Job
from rlanything_coding.sandbox.local import LocalExecutor
executor = LocalExecutor(1)
print(*executor.box_pids(), flush=True)
executor.run(Job("import time\\ntime.sleep(60)"))
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_a_host_that_is_killed_leaves_nothing(stopped: bool) -> None:
    host = subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE)
    assert host.stdout is not None
    group = int(host.stdout.readline())
    deadline = time.monotonic() + 60
    while len(processes := family(group)) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(processes) == 4
    if stopped:
        for pid in processes[1:]:
            os.kill(pid, signal.SIGSTOP)
    host.kill()
    host.wait()
    host.stdout.close()
    while any(alive(pid) for pid in processes) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [pid for pid in processes if alive(pid)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_boxes_outlive_the_threads_that_use_them(executor: LocalExecutor) -> None:
    for _ in range(3):
        [pid] = executor.box_pids()
        os.kill(pid, signal.SIGKILL)  # so that the thread needs a new one
        wait_for_the_end_of(pid)
        results: list[Verdict] = []

        def run(results: list[Verdict] = results) -> None:
            results.append(executor.run(Job("print(1)", expected="1")).verdict)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        time.sleep(0.05)
        before = executor.restarts
        assert executor.run(Job("print(1)", expected="1")).verdict is Verdict.OK
        assert (results, executor.restarts) == ([Verdict.OK], before)


def test_boxes_do_not_hear_one_another_through_files_that_both_see() -> None:
    # A futex on a page of the standard library is the same in all boxes.
    program = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
arm = os.uname().machine == "aarch64"
file = os.open(os.__file__, os.O_RDONLY)
heard = []
for flags in (1, 2):
    page = ctypes.c_void_p(libc.mmap(None, 4096, 1, flags, file, 0))
    value = ctypes.c_int.from_address(page.value).value
    for operation in ((0, 9) if {waits} else (1, 10)):
        limit = (ctypes.c_long * 2)(0, 10**8)
        given = (value, limit) if {waits} else (1, None)
        done = libc.syscall(98 if arm else 202, page, operation, *given, None, -1)
        heard.append((done, ctypes.get_errno()))
print(heard)
"""
    with LocalExecutor(2) as executor:
        jobs = [Job(program.format(waits=waits), limits=LIMITS) for waits in (True, False)]
        for result in executor.run_all(jobs):
            assert result.text == f"{[(-1, 11)] * 4}\n", result
