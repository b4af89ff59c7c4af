"""Accepted rewrites of AlfWorld's published games, against the games that are held out: adds a
section to a page.

    RLANYTHING_ALFWORLD_DATA=json_2.1.1 python benchmarks/rewrites.py RUN [RUN ...] --page PAGE
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlanything.runs.open import open_run
from rlanything_alfworld.dataset import FOLDERS, folder_name, games_folder, held_out, read_game
from rlanything_alfworld.domain import PUBLISHED_GAMES
from rlanything_alfworld.goal import Goal

SECTION = "\n## Accepted rewrites\n"
SHOWN = 6
"""Number of rewrites that the page quotes."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A game with another goal, which a run accepted."""

    path: str
    goal: Goal
    direction: str
    accuracies: tuple[float, float]
    """Success at the task before and at this one."""


def accepted(slots: Sequence[Mapping[str, Any]]) -> Iterator[Rewrite]:
    """Yields the accepted rewrites of a run's `tasks()`."""
    for slot in slots:
        for event in slot["history"]:
            if event["event"] == "accepted":
                data = event["data"]
                both = (event["parent_accuracy"], event["candidate_accuracy"])
                goal = Goal.from_json(data["goal"])
                yield Rewrite(str(data["path"]), goal, event["direction"], both)


def section(rewrites: Sequence[Rewrite], folder: Path, command: str) -> str:
    """Returns the section about these rewrites and the games in `folder`."""
    held = {
        split: {each.name for each in (folder / FOLDERS[split]).iterdir()}
        for split in ("in_domain", "ood")
    }
    named = [folder_name(each.path, each.goal) for each in rewrites]
    inside = {split: sum(name in names for name in named) for split, names in held.items()}
    tuned = sum(held_out(r.path, r.goal) for r in rewrites) - inside["in_domain"]
    harder = sum(r.direction == "harder" for r in rewrites)
    lines = [
        SECTION,
        f"`{command}`: {len(rewrites)} accepted, {harder} of them harder and "
        f"{len(rewrites) - harder} easier. Goal and room of a game in `valid_seen`: "
        f"{inside['in_domain']}; in `valid_unseen`: {inside['ood']}; in `tune`: {tuned}.",
        "",
        "| published goal | accepted goal | success of the task before, of this one |",
        "|---|---|---|",
    ]
    for each in rewrites[:: max(1, len(rewrites) // SHOWN)][:SHOWN]:
        before, after = each.accuracies
        was = read_game(each.path).goal.sentence()
        lines.append(f"| {was} | {each.goal.sentence()} | {before:.0%}, {after:.0%} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--page", type=Path, required=True)
    given = parser.parse_args()
    rewrites = [each for run in given.runs for each in accepted(open_run(run).tasks())]
    command = shlex.join(["python", "benchmarks/rewrites.py", *map(str, given.runs)])
    added = section(rewrites, games_folder(os.environ[PUBLISHED_GAMES]), command)
    page = given.page.read_text(encoding="utf-8").partition(SECTION)[0]
    given.page.write_text(page.rstrip("\n") + "\n" + added, encoding="utf-8")
    print(f"wrote {given.page}")


if __name__ == "__main__":
    main()
