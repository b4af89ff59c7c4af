"""The quickstart's iteration on one seat, on two, and on two threads of one process; alone, and
next to one busy program. Rewrites benchmarks/seats.md.

python benchmarks/seats.py [--rounds 3] [--quick]

Ways and circumstances take turns, each in a process of its own, so that what else the machine does
falls on all of them. Machines differ and are shared: the page gives ratios of one round.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from few import mean_of_few

PAGE = Path(__file__).with_suffix(".md")
LIMIT = 100.0
"""Seconds of one measurement; threads that spin next to a busy program may take for ever."""


@dataclass(frozen=True)
class Way:
    """A way to spend two cores."""

    name: str
    changes: tuple[str, ...]
    spins: bool = False


WAYS = (
    Way("one seat, one thread", ("threads=1", "cluster.seats=1")),
    Way("two seats", ("cluster.seats=2",)),
    Way("two threads that sleep", ("threads=2", "cluster.seats=1")),
    Way("two threads that spin", ("threads=2", "cluster.seats=1"), spins=True),
)
ITERATION = ("loop.iterations=1", "evaluation.episodes=0")
QUICK = ("loop.tasks_per_iteration=2", "loop.rollouts_per_task=2", "loop.max_steps=6")


def measure(changes: Sequence[str]) -> None:
    """Prints the seconds of an iteration, and those of them in which models were at work."""
    from rlanything.runs.trainer import Trainer

    with tempfile.TemporaryDirectory() as folder:
        run = f"run_dir={folder}/run"
        trainer: Any = Trainer(
            "quickstart",
            overrides=[*ITERATION, run, *changes],
            progress=False,
        )
        at_work = [0.0]

        def timed(owner: Any, method: str) -> None:
            plain = getattr(owner, method)

            def call(*given: Any, **named: Any) -> Any:
                begun = time.perf_counter()
                try:
                    return plain(*given, **named)
                finally:
                    at_work[0] += time.perf_counter() - begun

            setattr(owner, method, call)

        components = trainer._session.loaded.components
        for engine in components.engines:
            timed(engine, "generate")
        for trained in components.trained_models.values():
            timed(trained.learner, "update")
        begun = time.perf_counter()
        measured: dict[str, float] = {}
        for record in trainer:
            took, begun = time.perf_counter() - begun, time.perf_counter()
            worked, at_work[0] = at_work[0], 0.0
            tokens = record.metrics["policy/sample_tokens"] + record.metrics["judge/sample_tokens"]
            measured = {"seconds": took, "models": worked, "tokens": tokens}
        print(json.dumps(measured))


def spin() -> None:
    while True:
        pass


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """Runs so many programs that want a core each."""
    others = [multiprocessing.Process(target=spin, daemon=True) for _ in range(programs)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def run(way: Way, changes: Sequence[str]) -> dict[str, float] | None:
    """Returns what one measurement printed; None where it met its limit."""
    spinning = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "INFINITE"} if way.spins else {}
    command = [sys.executable, __file__, "--measure", *way.changes, *changes]
    try:
        done = subprocess.run(
            command,
            env=os.environ | spinning,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        sys.exit(f"{way.name}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def ratio(rounds: Sequence[float]) -> str:
    """Formats ratios of rounds: their median, and Student's interval of their mean."""
    interval = mean_of_few(rounds)
    within = f" [{interval.low:.2f}, {interval.high:.2f}]" if interval else ""
    return f"{median(rounds):.2f}x{within}"


def row(way: Way, taken: Sequence[dict[str, float] | None], base: Sequence[float]) -> str:
    whole = [each for each in taken if each is not None]
    if len(whole) < len(taken):
        return f"| {way.name} | over {LIMIT:g} s | - | - |"
    seconds = [each["seconds"] for each in whole]
    faster = ratio([first / own for first, own in zip(base, seconds, strict=True)])
    outside = median(1 - each["models"] / each["seconds"] for each in whole)
    return f"| {way.name} | {median(seconds):.1f} s | {faster} | {outside:.0%} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="tiny iterations; writes no page")
    parser.add_argument("--measure", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        return measure(arguments.measure)
    rounds, changes = (1, QUICK) if arguments.quick else (arguments.rounds, ())
    taken: dict[tuple[int, str], list[dict[str, float] | None]] = {}
    for number in range(rounds):
        for programs in (0, 1):
            for way in WAYS:
                with busy(programs):
                    result = run(way, changes)
                taken.setdefault((programs, way.name), []).append(result)
                print(number + 1, programs, way.name, result, flush=True)
    lines = [
        "# Two seats against one, and against two threads",
        "",
        f"`python benchmarks/seats.py --rounds {rounds}`, python {platform.python_version()}, "
        f"torch {torch.__version__}, {platform.machine()}, {len(os.sched_getaffinity(0))} cores. "
        "An iteration of `quickstart` without evaluation: medians of rounds in which all ways took "
        "turns. Ratios are to one seat in the same round, with 95% intervals over rounds. The last "
        "column is the share of the iteration in which no model was at work.",
    ]
    for programs, title in ((0, "Alone"), (1, "Next to one busy program")):
        base = [each["seconds"] if each else LIMIT for each in taken[programs, WAYS[0].name]]
        lines += ["", f"## {title}", "", "| | iteration | faster than one seat | outside models |"]
        lines += ["|---|---|---|---|"]
        lines += [row(way, taken[programs, way.name], base) for way in WAYS]
    page = "\n".join(lines) + "\n"
    if arguments.quick:
        print(page)
    else:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
