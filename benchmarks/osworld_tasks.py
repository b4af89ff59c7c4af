"""Which of OSWorld's own tasks can be played here: writes a table of those that need nothing from
outside.

    RLANYTHING_OSWORLD_DATA=evaluation_examples python benchmarks/osworld_tasks.py [--out FILE]

Each is set up on a fresh desktop of this machine and scored as it is, untouched. A score of 0 is
weak evidence, for a set-up that failed without a word scores 0 too; only an expert or an agent that
wins shows that a task works. Some are played by an expert too (osworld_experts.py), with mouse and
keyboard on another fresh desktop. Infeasible tasks are right with `fail`, and so scored as well.
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

from osworld_experts import EXPERTS, in_terminal

from rlanything.domains.base import EpisodeError
from rlanything.records import Completion, Step, Task
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.environment import DesktopEnvironment
from rlanything_osworld.experts import next_action
from rlanything_osworld.families import Move

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
    expert: float | None = None
    """The score of our expert; None where there is none, or it did not get to the end."""

    @property
    def by_expert(self) -> str:
        """What the table says of the expert."""
        if self.id not in EXPERTS:
            return ""
        score = "not done" if self.expert is None else f"{self.expert:g}"
        return f"{score}, in a terminal" if in_terminal(EXPERTS[self.id]) else score


def tried(domain: OSWorld, task: Task) -> TriedTask:
    """Sets a task up and scores it untouched; an infeasible one also by `fail`."""
    begun = time.perf_counter()
    environment = domain.environment()
    score, expert, reason = None, None, ""
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
    seconds = time.perf_counter() - begun
    try:
        if task.id in EXPERTS:
            expert = played(environment, task, EXPERTS[task.id])
    except EpisodeError as fault:
        reason = f"{reason} the expert: {fault.reason}".strip()
    finally:
        environment.close()
    return TriedTask(task.kind, task.id, what, score, seconds, reason, expert)


def played(environment: DesktopEnvironment, task: Task, moves: Sequence[Move]) -> float | None:
    """Returns the score of an expert; None where a screen lacks what it looks for. Raises
    `EpisodeError`."""
    steps = list[Step]()
    screen = environment.reset(task).text
    while (action := next_action(moves, steps, screen)) is not None:
        said = f"> {action}"
        result = environment.step(said)
        if result.outcome is not None:
            return result.reward
        after = result.observation.text
        completion = Completion.unsampled(said)
        steps.append(Step(screen, completion, result.action, result.valid, after))
        screen = after
    return None


def page(results: Sequence[TriedTask], total: int) -> Iterator[str]:
    """Yields the lines of the table, its summary first."""
    yield "# OSWorld's tasks on this machine\n"
    yield "Written by `python benchmarks/osworld_tasks.py`, each task once. Of the folder's tasks"
    yield f"{total} need nothing from outside. A score of 0 is weak evidence: so scores a set-up"
    yield "that failed without a word.\n"
    yield "| what became of it | tasks |\n|---|---|"
    for what, count in sorted(Counter(each.what for each in results).items()):
        yield f"| {what} | {count} |"
    won = [each for each in results if each.score != 1 and each.expert == 1]
    gui = Counter(each.application for each in won if not in_terminal(EXPERTS[each.id]))
    named = ", ".join(f"{name} {count}" for name, count in sorted(gui.items()))
    yield f"\nScripted experts reach 1 through the GUI in {gui.total()} tasks that do not score 1"
    yield f"untouched ({named}), and in {len(won) - gui.total()} in a terminal that they open.\n"
    yield "| application | task | what | score untouched | by our expert | seconds | reason |"
    yield "|---|---|---|---|---|---|---|"
    for each in sorted(results, key=lambda result: (result.application, result.id)):
        score = "" if each.score is None else f"{each.score:g}"
        reason = each.reason.replace("|", "\\|")
        cells = (each.application, each.id, each.what, score, each.by_expert)
        yield f"| {' | '.join((*cells, f'{each.seconds:.0f}', reason))} |"


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
