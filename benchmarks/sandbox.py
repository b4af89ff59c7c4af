"""The costs of containment: writes benchmarks/sandbox.md.

    python benchmarks/sandbox.py [--rounds 15] [--runs 200]

Four ways run the same programs, two at a time, and take turns, so that a busy machine slows all.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rlanything_coding.sandbox.base import Job, Verdict
from rlanything_coding.sandbox.comparison import same_tokens
from rlanything_coding.sandbox.local import LocalExecutor
from rlanything_sandbox.bubblewrap import bubblewrap

REPORT = Path(__file__).with_name("sandbox.md")
PARALLEL = 2
SECONDS = 10.0

PROGRAMS = {
    "trivial": "print(int(input()) * 2)",
    "a loop": "n = int(input())\nt = 0\nfor i in range(n % 10000 + 10000): t += 1\nprint(n * 2)",
    "a sieve": "import sys\nn = int(sys.stdin.readline())\nsieve = bytearray([1]) * 20000\n"
    "for i in range(2, 142):\n    if sieve[i]:\n"
    "        sieve[i * i::i] = bytes(len(range(i * i, 20000, i)))\nprint(2 * n)",
    "library": "from collections import Counter, defaultdict\nimport heapq, math, re\n"
    "n = int(input())\nprint(sum(Counter([n, n]).elements()))",
    "a dataclass": "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
    "print(P(int(input())).x * 2)",
}


def jobs(count: int, seed: int) -> list[Job]:
    rng = random.Random(seed)
    sources = list(PROGRAMS.values())
    numbers = [rng.randrange(10**6) for _ in range(count)]
    return [
        Job(sources[i % len(sources)], f"{number}\n", str(2 * number))
        for i, number in enumerate(numbers)
    ]


# --- the other ways


def _exec_here(program: str, stdin: str, answer: Connection) -> None:
    sys.stdin, out = io.StringIO(stdin), io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(program, {"__name__": "__main__"})
    except BaseException as error:
        answer.send((False, repr(error)))
    else:
        answer.send((True, out.getvalue()))


def forked(work: Sequence[Job]) -> list[bool]:
    """The usual way: a process per run by `multiprocessing`, and `exec` in it. Contains nothing."""
    context: Any = multiprocessing.get_context("fork")
    running: dict[Any, tuple[BaseProcess, int]] = {}
    right = [False] * len(work)
    started = 0
    while started < len(work) or running:
        while started < len(work) and len(running) < PARALLEL:
            job = work[started]
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_exec_here, args=(job.program, job.stdin, theirs))
            process.start()
            theirs.close()
            running[ours] = process, started
            started += 1
        ready: list[Any] = wait(list(running), SECONDS)
        for ours in ready:
            process, number = running.pop(ours)
            well, said = ours.recv()
            right[number] = well and same_tokens(said, work[number].expected or "")
            ours.close()
            process.join()
            process.close()
    return right


def bare(work: Sequence[Job]) -> list[bool]:
    """The least that a fork and an `exec` can cost: nothing of `multiprocessing`, no time limit."""
    running: dict[int, tuple[int, int]] = {}
    right = [False] * len(work)
    for number, job in enumerate(work):
        if len(running) == PARALLEL:
            _reap(running, right, work)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            sys.stdin, sys.stdout = io.StringIO(str(job.stdin)), io.StringIO()
            exec(job.program, {"__name__": "__main__"})
            os.write(write, sys.stdout.getvalue().encode())
            os._exit(0)
        os.close(write)
        running[pid] = number, read
    while running:
        _reap(running, right, work)
    return right


def _reap(running: dict[int, tuple[int, int]], right: list[bool], work: Sequence[Job]) -> None:
    # Any child: the boxes' outermost processes live as long as the executor.
    pid, _ = os.wait()
    number, read = running.pop(pid)
    with open(read, "rb") as answer:
        right[number] = same_tokens(answer.read().decode(), work[number].expected or "")


def box_command() -> list[str]:
    """bwrap with few mounts, which is fast: all of /usr shows."""
    command = [bubblewrap() or "bwrap", "--unshare-all", "--clearenv", "--cap-drop", "ALL"]
    command += ["--ro-bind", "/usr", "/usr"]
    for folder in (Path("/lib"), Path("/lib64")):
        if folder.is_symlink():
            command += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            command += ["--ro-bind", str(folder), str(folder)]
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        command += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    executable = os.path.realpath(sys.executable)
    return [*command, "--remount-ro", "/", "--", executable, "-I", "-S", "-c"]


def boxed(command: Sequence[str], job: Job) -> bool:
    """bwrap and a new Python for every run."""
    ended = subprocess.run(
        [*command, job.program],
        input=job.stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    return ended.returncode == 0 and same_tokens(ended.stdout, job.expected or "")


# --- measuring


def rate(run: Callable[[Sequence[Job]], list[bool]], work: Sequence[Job]) -> float:
    """Runs per second; every one must have come out right."""
    began = time.perf_counter()
    right = run(work)
    seconds = time.perf_counter() - began
    assert all(right), f"{right.count(False)} of {len(right)} runs came out wrong"
    return len(work) / seconds


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95% of the median, by bootstrap."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(4000))
    return medians[100], medians[-101]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=200)
    arguments = parser.parse_args()
    load, command = os.getloadavg()[0], box_command()
    with LocalExecutor(PARALLEL) as executor, ThreadPoolExecutor(PARALLEL) as threads:
        ways: dict[str, Callable[[Sequence[Job]], list[bool]]] = {
            "sandbox": lambda work: [each.verdict is Verdict.OK for each in executor.run_all(work)],
            "forked": forked,
            "bare": bare,
            "box": lambda work: list(threads.map(lambda job: boxed(command, job), work)),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for run in ways.values():
            rate(run, jobs(20, 0))
        for turn in range(arguments.rounds):
            order = list(ways)
            random.Random(turn).shuffle(order)
            work = jobs(arguments.runs, turn)
            for name in order:
                share = work if name != "box" else work[: len(work) // 4]
                rates[name].append(rate(ways[name], share))
            print(turn, {name: round(found[-1]) for name, found in rates.items()}, flush=True)
    REPORT.write_text(page(rates, arguments.rounds, arguments.runs, load), encoding="utf-8")


LABELS = {
    "sandbox": "rlanything's sandbox, every layer on",
    "forked": "(a) `multiprocessing` fork and `exec`, contains nothing",
    "bare": "(a') bare `os.fork` and `exec`, no time limit either",
    "box": "(b) `bwrap` and `python -I -S` per run",
}


def page(rates: dict[str, list[float]], rounds: int, runs: int, load: float) -> str:
    lines = [
        "# What containment costs",
        "",
        f"`python benchmarks/sandbox.py --rounds {rounds} --runs {runs}` wrote this page. Python "
        f"{platform.python_version()}, {os.cpu_count()} cores ({platform.machine()}), load average "
        f"at the start {load:.1f}, {'root' if os.geteuid() == 0 else 'a plain user'}.",
        "",
        f"{rounds} rounds; in each, every way runs the same {runs} programs ((b) a quarter of "
        f"them), {PARALLEL} at a time, in a new random order, and every output is compared. "
        f"{len(PROGRAMS)} programs in equal parts: {', '.join(PROGRAMS)}.",
        "",
        "| way | runs per second, median | lowest and highest round |",
        "|---|---|---|",
    ]
    for name, values in rates.items():
        lines.append(
            f"| {LABELS[name]} | {statistics.median(values):.0f} | "
            f"{min(values):.0f} to {max(values):.0f} |"
        )
    lines += [
        "",
        "| the sandbox against | median ratio of rounds | 95% interval |",
        "|---|---|---|",
    ]
    for name in ("forked", "bare", "box"):
        ratios = [one / other for one, other in zip(rates["sandbox"], rates[name], strict=True)]
        low, high = interval(ratios)
        median = statistics.median(ratios)
        lines.append(f"| {LABELS[name]} | {median:.2f}x | {low:.2f} to {high:.2f} |")
    lines += [
        "",
        "(a) and (a') fork this script's own process, which has loaded little: what a fork costs "
        "grows with the process, and the sandbox forks a small Python of its own whatever the "
        "trainer holds.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
