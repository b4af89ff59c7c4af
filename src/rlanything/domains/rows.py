"""Tasks from the lines of a file, divided among splits."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlanything.domains.base import DomainError, MissingData
from rlanything.records import Task
from rlanything.seeds import derive


@dataclass(frozen=True, slots=True)
class TaskSet:
    """The tasks of all rows, by split."""

    domain: str
    """Name of the domain, from which its order of tasks is derived."""
    noun: str
    """Plural of what the source holds, for messages."""
    place: str
    """Source of the tasks, for messages."""
    by_split: Mapping[str, Sequence[Task]]

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Returns `count` tasks of a split, or all if there are fewer. Raises `DomainError` for a
        split without tasks."""
        tasks = list(self.by_split.get(split, ()))
        if not tasks:
            known = ", ".join(name for name, members in self.by_split.items() if members)
            raise DomainError(
                f"{self.place}: split {split!r} has no {self.noun}: add some, or name others in "
                f"evaluation.splits (there are: {known})"
            )
        random.Random(derive(seed, self.domain, split)).shuffle(tasks)
        return tasks[:count]


def read_lines(path: Path, noun: str) -> Iterator[tuple[int, Any]]:
    """Yields the JSON of each line that is not blank, with its number. `noun`: name of a line in
    messages. Raises `DomainError`."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise MissingData(f"tasks: {path} cannot be read ({error.strerror}); name a file") from None
    except UnicodeDecodeError:
        raise DomainError(f"tasks: {path} is not UTF-8; save it as UTF-8") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DomainError(f"{path}, {noun} {number}: not JSON ({error}); fix it") from None


def check_shares(shares: Mapping[str, float]) -> None:
    """Raises `DomainError` for shares of splits that are not above 0, or add up to more than 1."""
    if min(shares.values(), default=0) <= 0 or sum(shares.values()) > 1 + 1e-9:
        raise DomainError("splits must be shares above 0 that add up to 1 at most: {train: 0.8}")


def divided(
    tasks: Collection[tuple[Task, str | None]], shares: Mapping[str, float]
) -> dict[str, list[Task]]:
    """Returns the tasks of each split. `tasks`: tasks with the splits that they name; `shares`:
    share of each split if none names one. In that case a task's split depends only on the set of
    all ids."""
    named = {split for _, split in tasks if split is not None}
    if named:
        return {name: [task for task, own in tasks if own == name] for name in sorted(named)}
    order = sorted(
        (task for task, _ in tasks), key=lambda task: hashlib.sha256(task.id.encode()).digest()
    )
    dealt: dict[str, list[Task]] = {}
    start, share = 0, 0.0
    for name, own in shares.items():
        share += own
        end = round(share * len(order))
        dealt[name] = order[start:end]
        start = end
    return dealt
