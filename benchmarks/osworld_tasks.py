"""Which of OSWorld's own tasks can be played here: writes a table of those that need nothing from
outside.

    RLANYTHING_OSWORLD_DATA=evaluation_examples python benchmarks/osworld_tasks.py [--out FILE]

Each is set up on a fresh desktop of this machine and scored as it is, untouched. A score of 0 is
weak evidence, for a set-up that failed without a word scores 0 too; only an expert or an agent that
wins shows that a task works. Infeasible tasks are right with `fail`, and are so scored as well.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlanything.domains.base import EpisodeError
from rlanything.domains.osworld.domain import OSWorld
from rlanything.records import Task

VARIABLE = "RLANYTHING_OSWORLD_DATA"


@dataclass(frozen=True, slots=True)
class TriedTask:
    """What became of one task."""

    application: str
    id: str
    what: str
    """One of the kinds that the summary counts."""
    score: float | None
    """Untouched; None where there is none."""
    seconds: float
    reason: str = ""


def tried(domain: OSWorld, task: Task) -> TriedTask:
    """Sets a task up and scores it untouched; an infeasible one also by `fail`."""
    begun = time.perf_counter()
    environment = domain.environment()
    score, reason = None, ""
    try:
        environment.reset(task)
        what = "no score"
        score = environment.step("> done").reward
        what = "0 untouched" if score == 0 else "not 0 untouched"
        if task.data["example"]["evaluator"]["func"] == "infeasible":
            environment.reset(task)
            right = environment.step("> fail").reward == 1
            what = "infeasible, 1 by fail" if right and score == 0 else "infeasible, scored wrongly"
    except EpisodeError as fault:
        what, reason = ("no score" if fault.lost else "no set-up"), fault.reason
    finally:
        environment.close()
    return TriedTask(task.kind, task.id, what, score, time.perf_counter() - begun, reason)


def page(results: Sequence[TriedTask], total: int) -> Iterator[str]:
    """Yields the lines of the table, its summary first."""
    yield "# OSWorld's tasks on this machine\n"
    yield "Written by `python benchmarks/osworld_tasks.py`, each task once. Of the folder's tasks"
    yield f"{total} need nothing from outside. A score of 0 is weak evidence: so scores a set-up"
    yield "that failed without a word.\n"
    yield "| what became of it | tasks |\n|---|---|"
    for what, count in sorted(Counter(each.what for each in results).items()):
        yield f"| {what} | {count} |"
    yield "\n| application | task | what | score untouched | seconds | reason |"
    yield "|---|---|---|---|---|---|"
    for each in sorted(results, key=lambda result: (result.application, result.id)):
        score = "" if each.score is None else f"{each.score:g}"
        reason = each.reason.replace("|", "\\|")
        cells = (each.application, each.id, each.what, score, f"{each.seconds:.0f}", reason)
        yield f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("osworld-tasks.md"))
    options = parser.parse_args(arguments)
    folder = os.environ.get(VARIABLE)
    if folder is None:
        sys.exit(f"{VARIABLE} names no folder: set it to OSWorld's evaluation_examples")
    domain = OSWorld(data=folder)
    tasks = domain.tasks("all", sys.maxsize, 0)
    results = []
    for number, task in enumerate(tasks, 1):
        results.append(tried(domain, task))
        print(f"{number}/{len(tasks)} {task.kind}/{task.id}: {results[-1].what}", file=sys.stderr)
    domain.evaluators.close()
    options.out.write_text("\n".join(page(results, len(tasks))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
