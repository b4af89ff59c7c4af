"""Which of OSWorld's own tasks can be played here: writes a table of those that need nothing from
outside.

    RLANYTHING_OSWORLD_DATA=FOLDER python benchmarks/osworld_tasks.py [--prepared] [--out FILE]

FOLDER is OSWorld's `evaluation_examples`; with `--prepared` it also has the paper's `new_examples`,
and only the tasks that the paper prepared are played, each with all its goals.

Each is set up on a fresh desktop of this machine and scored as it is, untouched. A score of 0 is
weak evidence, because a set-up that failed without a word scores 0 too; only an expert or an agent
that wins shows that a task works. Some are also played by an expert (`published_experts`), with
mouse and keyboard on another fresh desktop. Infeasible tasks are right with `fail`, and are also
scored that way.
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
from rlanything.records import Completion, Step, Task
from rlanything_osworld.dataset import ListedTask, listed_tasks
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.environment import DesktopEnvironment
from rlanything_osworld.experts import next_action
from rlanything_osworld.families import Move
from rlanything_osworld.goals import with_goal
from rlanything_osworld.published_experts import in_terminal, published_moves

VARIABLE = "RLANYTHING_OSWORLD_DATA"
SCRIPT = "python benchmarks/osworld_tasks.py"


@dataclass(frozen=True, slots=True)
class TriedTask:
    """Result of one task."""

    application: str
    id: str
    what: str
    """One of the kinds that the summary counts."""
    score: float | None
    """Score untouched; None without one."""
    seconds: float
    reason: str = ""
    way: str = ""
    """How our expert does it: `GUI` or `terminal`; "" without an expert."""
    expert: float | None = None
    """Score of our expert; None without one, or if it did not get to the end."""
    goal: str = ""
    """Name of the goal, of a task with several."""

    @property
    def by_expert(self) -> str:
        """Returns the expert's cell in the table."""
        if not self.way:
            return ""
        score = "not done" if self.expert is None else f"{self.expert:g}"
        return f"{score}, in a terminal" if self.way == "terminal" else score

    @property
    def won(self) -> bool:
        """Whether the expert won what was not won untouched."""
        return self.score != 1 and self.expert == 1


def tried(domain: OSWorld, task: Task) -> TriedTask:
    """Sets a task up and scores it untouched; an infeasible one also by `fail`."""
    begun = time.perf_counter()
    environment = domain.environment()
    score, expert, reason, way = None, None, "", ""
    infeasible = task.data["example"]["evaluator"]["func"] == "infeasible"
    try:
        environment.reset(task)
        what = "no score"
        score = environment.step("> done").reward
        what = "0 untouched" if score == 0 else "not 0 untouched"
        if infeasible:
            environment.reset(task)
            right = environment.step("> fail").reward == 1
            what = "infeasible, 1 by fail" if right and score == 0 else "infeasible, scored wrongly"
    except EpisodeError as fault:
        what, reason = ("no score" if fault.lost else "no set-up"), fault.reason
    seconds = time.perf_counter() - begun
    moves = None if infeasible else published_moves(task)
    try:
        if moves is not None:
            way = "terminal" if in_terminal(moves) else "GUI"
            expert = played(environment, task, moves)
    except EpisodeError as fault:
        reason = f"{reason} the expert: {fault.reason}".strip()
    finally:
        environment.close()
    goal = task.data.get("chosen", {}).get("goal", "")
    name = task.data["example"]["id"]
    return TriedTask(task.kind, name, what, score, seconds, reason, way, expert, goal)


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


def goals(task: Task) -> list[Task]:
    """Returns a task with each of its goals, its own first."""
    own = task.data.get("chosen", {}).get("goal")
    others = [name for name in task.data.get("goals", {}) if name != own]
    return [task, *(with_goal(task, f"{task.id}-{name}", {"goal": name}) for name in others)]


def page(results: Sequence[TriedTask], opening: Sequence[str]) -> Iterator[str]:
    """Yields the lines of the page: the opening, a summary, the table."""
    yield from opening
    yield "\nA score of 0 is weak evidence: a set-up that failed without a word scores 0 too.\n"
    yield "| what became of it | count |\n|---|---|"
    for what, count in sorted(Counter(each.what for each in results).items()):
        yield f"| {what} | {count} |"
    won = {each.id: each for each in results if each.won}.values()
    gui = Counter(each.application for each in won if each.way == "GUI")
    named = ", ".join(f"{name} {count}" for name, count in sorted(gui.items()))
    yield f"\nScripted experts reach 1 through the GUI in {gui.total()} tasks that do not score 1"
    yield f"untouched ({named}), and in {len(won) - gui.total()} in a terminal that they open.\n"
    yield "| application | task | what | score untouched | by our expert | seconds | reason |"
    yield "|---|---|---|---|---|---|---|"
    for each in sorted(results, key=lambda result: (result.application, result.id, result.goal)):
        score = "" if each.score is None else f"{each.score:g}"
        reason = each.reason.replace("|", "\\|")
        name = f"{each.id} {each.goal}".strip()
        cells = (each.application, name, each.what, score, each.by_expert)
        yield f"| {' | '.join((*cells, f'{each.seconds:.0f}', reason))} |"


def all_opening(listed: Sequence[ListedTask]) -> Iterator[str]:
    """Yields the beginning of the page of all tasks."""
    playable = sum(each.obstacle is None for each in listed)
    yield "# OSWorld's tasks on this machine\n"
    yield f"Written by `{SCRIPT}`, each task once. Of the folder's {len(listed)} tasks {playable}"
    yield "can be played here."


def prepared_opening(listed: Sequence[ListedTask]) -> Iterator[str]:
    """Yields the beginning of the page of the paper's prepared tasks, with those that need nothing
    from outside and cannot be played."""
    local = [each for each in listed if each.obstacle is None or not _from_outside(each)]
    barred = [(each, each.obstacle) for each in local if each.obstacle is not None]
    yield "# The paper's prepared desktop tasks on this machine\n"
    yield f"Written by `{SCRIPT} --prepared`: each task once, with each of its goals."
    yield f"The paper prepared {len(listed)} tasks for adaptation. {len(listed) - len(local)} need"
    yield "files or pages from outside; `python -m rlanything_osworld.dataset FOLDER` names each"
    yield "file and its place."
    yield f"\nOf the other {len(local)} these {len(barred)} cannot be played here:\n"
    yield "| application | task | reason |\n|---|---|---|"
    for each, obstacle in sorted(barred, key=lambda pair: (pair[0].application, pair[0].id)):
        yield f"| {each.application} | {each.id} | {obstacle.reason} |"
    yield f"\nThe remaining {len(local) - len(barred)} were played. Without an expert are the tasks"
    yield "that nothing on this desktop can do: Spotify needs the internet, and the window manager"
    yield "maximizes every terminal."


def _from_outside(listed: ListedTask) -> bool:
    found = listed.obstacle
    return found is not None and (bool(found.files) or found.kind not in ("application", "system"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--prepared", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    folder = os.environ.get(VARIABLE)
    if folder is None:
        sys.exit(f"{VARIABLE} names no folder: set it to OSWorld's evaluation_examples")
    source = Path(folder, "new_examples") if options.prepared else Path(folder)
    listed = listed_tasks(source)
    if options.prepared:
        listed = [each for each in listed if "evaluator_list" in each.example]
    opening = prepared_opening(listed) if options.prepared else all_opening(listed)
    domain = OSWorld(data=str(source))
    tasks = [goal for each in listed if each.obstacle is None for goal in goals(each.task())]
    results = []
    for number, task in enumerate(tasks, 1):
        results.append(tried(domain, task))
        last = results[-1]
        said = f"{last.application}/{last.id} {last.goal} {last.what} {last.by_expert}"
        print(f"{number}/{len(tasks)} {said} {last.reason}", file=sys.stderr)
    domain.evaluators.close()
    name = "osworld-prepared.md" if options.prepared else "osworld-tasks.md"
    out = options.out or Path(__file__).with_name(name)
    out.write_text("\n".join(page(results, list(opening))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
