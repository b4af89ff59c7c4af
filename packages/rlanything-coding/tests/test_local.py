"""The local executor survives what it runs, and refuses to run without its box."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlanything_coding.sandbox import local
from rlanything_coding.sandbox.base import (
    MOST,
    Job,
    Limits,
    RunResult,
    SandboxError,
    SandboxUnavailable,
    Verdict,
)
from rlanything_coding.sandbox.local import TRIES, LocalExecutor

LIMITS = Limits(cpu_seconds=1, wall_seconds=8, memory_mb=256, output_bytes=2**16)

KINDS = {
    "print(int(input()) * 2)": Verdict.OK,
    "import sys\nn = int(sys.stdin.read())\nprint(n + n)": Verdict.OK,
    "print(int(input()) * 2 + 1)": Verdict.WRONG,
    "pass": Verdict.WRONG,
    "1 / 0": Verdict.ERROR,
    "import os\nos.fork()": Verdict.ERROR,
    "import ctypes\nctypes.string_at(0)": Verdict.ERROR,
    "import os\nos.kill(os.getpid(), 9)": Verdict.ERROR,
    "import socket\nsocket.socket()": Verdict.ERROR,
    "print(input() * 10**5)": Verdict.OUTPUT,
    "x = bytearray(2**30)": Verdict.MEMORY,
    "import os\nos.close(0), os.close(1), os.close(2)\nos._exit(0)": Verdict.WRONG,
}
SLOW = {"while True: pass": Verdict.TIMEOUT, "import time\ntime.sleep(60)": Verdict.TIMEOUT}


def mixed(count: int, slow: int) -> list[tuple[Job, Verdict]]:
    rng = random.Random(0)
    found = []
    for _ in range(count):
        number = rng.randrange(10**3, 10**6)
        program, verdict = rng.choice(list(KINDS.items()))
        found.append((Job(program, f"{number}\n", str(2 * number), limits=LIMITS), verdict))
    for program, verdict in list(SLOW.items()) * slow:
        limits = Limits(cpu_seconds=0.2, wall_seconds=0.5)
        found.append((Job(program, limits=limits), verdict))
    rng.shuffle(found)
    return found


def processes(groups: list[int]) -> int:
    """How many are in these process groups."""
    count = 0
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                count += os.getpgid(int(each.name)) in groups
            except OSError:
                continue
    return count


def resident_kb() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def check_mixed(count: int, slow: int) -> None:
    with LocalExecutor(2) as executor:
        warm = mixed(200, 0)
        executor.run_all([job for job, _ in warm])
        groups = executor.box_pids()
        before = len(os.listdir("/proc/self/fd")), processes(groups)
        memory = resident_kb()
        jobs = mixed(count, slow)
        results = executor.run_all([job for job, _ in jobs])
        wrong = [
            (job.program, result)
            for (job, verdict), result in zip(jobs, results, strict=True)
            if result.verdict is not verdict
        ]
        assert not wrong
        assert executor.restarts == 0
        assert executor.box_pids() == groups
        assert (len(os.listdir("/proc/self/fd")), processes(groups)) == before
        # Results hold their outputs; beyond those, nothing may grow.
        kept = sum(len(each.stdout) for each in results) // 1024
        assert resident_kb() - memory < kept + 20_000 + count
    deadline = time.monotonic() + 60
    while processes(groups) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes(groups) == 0


def test_good_and_hostile_runs_get_their_verdicts_and_leave_nothing() -> None:
    check_mixed(500, 4)


@pytest.mark.slow
def test_ten_thousand_runs_get_their_verdicts_and_leave_nothing() -> None:
    check_mixed(10_000, 50)


def descendants(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += descendants(int(child))
    return found


@pytest.mark.parametrize("victim", range(4), ids=["monitor", "first process", "zygote", "run"])
def test_a_box_process_that_is_killed_costs_a_retry(victim: int) -> None:
    with LocalExecutor(1) as executor:
        executor.run(Job("pass"))
        job = Job("import time\ntime.sleep(2)\nprint(input())", "7", "7", limits=LIMITS)
        results = []
        thread = threading.Thread(target=lambda: results.append(executor.run(job)))
        thread.start()
        [pid] = executor.box_pids()
        deadline = time.monotonic() + 60
        while len(family := descendants(pid)) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(family[victim], signal.SIGKILL)
        thread.join()
        assert results[0].verdict is Verdict.OK, results
        assert executor.run(job).verdict is Verdict.OK
        assert executor.restarts <= 1


SLEEPER = Job("import time\ntime.sleep(5)\nprint(42)", expected="42", limits=LIMITS)


def killed(times: int, victim: int) -> RunResult:
    """The result of a long run that somebody kills, or whose box they do, so many times."""
    with LocalExecutor(1) as executor:
        results: list[RunResult] = []
        thread = threading.Thread(target=lambda: results.append(executor.run(SLEEPER)))
        thread.start()
        seen = set[int]()
        while thread.is_alive():
            for pid in executor.box_pids():
                with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
                    family = descendants(pid)
                    if len(family) == 4 and family[-1] not in seen and len(seen) < times:
                        seen.add(family[-1])
                        os.kill(family[victim], signal.SIGKILL)
            time.sleep(0.02)
        assert len(seen) == times
        return results[0]


def test_a_run_that_is_killed_as_every_other_is_broken_and_never_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "CONTROL", SLEEPER)
    result = killed(TRIES + 1, -1)
    assert result.verdict is Verdict.BROKEN
    assert "killed from outside" in result.reason


@pytest.mark.parametrize("victim", [-1, -2], ids=["run", "zygote"])
def test_a_program_under_which_every_box_dies_and_no_other_has_failed(victim: int) -> None:
    result = killed(TRIES, victim)
    assert result.verdict is Verdict.ERROR
    assert result.reason.endswith("3 times; another program ran")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell's background jobs ignore Ctrl-C, and these tests may be one of them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_run_does_not_answer_for_the_next() -> None:
    with LocalExecutor(1) as executor:
        main = threading.get_ident()
        threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            executor.run(Job("import time\ntime.sleep(5)\nprint('first')", limits=LIMITS))
        assert executor.run(Job("print('second')")).text == "second\n"


def test_runs_are_as_parallel_as_there_are_boxes() -> None:
    with LocalExecutor(4) as executor:
        jobs = [Job("import time\ntime.sleep(2.5)", limits=LIMITS)] * 4
        executor.run_all(jobs)
        began = time.monotonic()
        executor.run_all(jobs)
        assert time.monotonic() - began < 9  # one after another: 10


def test_limits_are_those_that_were_asked_for() -> None:
    with LocalExecutor(1) as executor:
        small = Limits(output_bytes=100, memory_mb=64)
        assert executor.run(Job("print('x' * 99)", limits=small)).verdict is Verdict.OK
        assert executor.run(Job("print('x' * 100)", limits=small)).verdict is Verdict.OUTPUT
        many = Job("x = bytearray(100 * 2**20)")
        assert executor.run(many).verdict is Verdict.OK
        assert executor.run(Job(many.program, limits=small)).verdict is Verdict.MEMORY
        threads = "import threading\ndone = threading.Event()\nfor n in range({}):\n" + (
            "    threading.Thread(target=done.wait, args=(2,)).start()\ndone.set()"
        )
        few = Limits(threads=4)
        assert executor.run(Job(threads.format(3), limits=few)).verdict is Verdict.OK
        assert executor.run(Job(threads.format(4), limits=few)).verdict is Verdict.ERROR
        measured = executor.run(Job("x = bytearray(64 * 2**20)\nimport time\ntime.sleep(0.2)"))
        assert measured.peak_memory_mb is not None
        assert 64 < measured.peak_memory_mb < 200
        assert measured.seconds >= 0.2


@pytest.mark.parametrize("field", ["cpu_seconds", "wall_seconds", "memory_mb", "threads"])
def test_a_limit_that_is_no_positive_number_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is 0: a limit is a positive number"):
        Limits(**{field: 0})


@pytest.mark.parametrize("field", MOST)
def test_a_limit_that_no_kernel_knows_is_refused(field: str) -> None:
    values: list[Any] = [2 * MOST[field], 1e18, 1e308, 10**400, float("inf"), float("nan")]
    for value in values:
        with pytest.raises(SandboxError, match=f"{field} is .*: a limit is a positive number, "):
            Limits(**{field: value})
    most: Any = MOST[field]
    largest = Limits(**{field: most})
    with LocalExecutor(1) as executor:
        assert executor.run(Job("print(1)", expected="1", limits=largest)).verdict is Verdict.OK


def test_a_program_finds_nothing_open_however_much_its_host_has() -> None:
    program = """
import os
for number in range(2048):
    try: print(number, os.fstat(number).st_mode)
    except OSError: pass
"""
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(open(__file__))
        with LocalExecutor(1) as executor:
            said = executor.run(Job(program)).text
    assert [line.split()[0] for line in said.splitlines()] == ["0", "1", "2"]


def test_a_program_does_not_learn_the_hosts_name() -> None:
    with LocalExecutor(1) as executor:
        assert executor.run(Job("import os\nprint(os.uname().nodename)")).text == "box\n"


def test_numpy_is_there_only_where_it_was_asked_for() -> None:
    program = "import numpy, os\nprint(numpy.arange(4).sum(), os.listdir('/python/packages'))"
    with LocalExecutor(1, imports=["numpy"]) as executor:
        result = executor.run(Job(program))
        assert result.verdict is Verdict.OK, result
        assert result.text.startswith("6 ['numpy")
        assert executor.run(Job("import pydantic")).verdict is Verdict.ERROR
    with LocalExecutor(1) as executor:
        assert executor.run(Job("import numpy")).verdict is Verdict.ERROR


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(SandboxUnavailable, match="nowhere_at_all is not installed"):
        LocalExecutor(1, imports=["nowhere_at_all"])


def test_without_bubblewrap_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ldd = tmp_path / "ldd"
    ldd.symlink_to("/usr/bin/ldd")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap") as caught:
        LocalExecutor(1)
    assert "\n" not in str(caught.value)


def test_a_mac_is_told_that_programs_need_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxUnavailable, match=r"needs Linux, .* darwin: use a Linux .*$"):
        LocalExecutor(1)


def test_where_bubblewrap_is_refused_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bwrap").write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n"
    )
    (tmp_path / "bwrap").chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(SandboxUnavailable, match=r"No permissions.*unprivileged_userns") as caught:
        LocalExecutor(1)
    assert "\n" not in str(caught.value)
