"""OSWorld's own tasks, read from a folder in its downloaded form.

    test_all.json              applications, each with the ids of its tasks
    examples/APP/ID.json       a task: id, instruction, config, evaluator, and perhaps goals.KEYS
    cache/ID/...               files that the task downloads, as left by OSWorld's own runs

The folder may also contain these in `evaluation_examples`. It may also be a folder next to
`examples`, such as the paper's `new_examples`: its tasks replace those in `examples`.

    python -m rlanything_osworld.dataset FOLDER [LIST]

prints which tasks of a list cannot be played on this machine and why, and for each file that is
missing its address and its place in the cache.
"""

from __future__ import annotations

import json
import logging
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlanything.domains.base import DomainError, MissingData
from rlanything.records import Task
from rlanything.seeds import derive
from rlanything.terminal import warn_of_damage, write_line
from rlanything_osworld.goals import KEYS, prepared
from rlanything_osworld.obstacles import KINDS, Obstacle, obstacle

log = logging.getLogger(__name__)
HELD_OUT = frozenset({"chrome", "multi_apps"})
"""The applications that the paper excludes from training."""
LISTS = ("test_all", "test_nogdrive")
"""OSWorld's own lists, which are splits too: they keep the tasks that cannot be played."""
SPLITS = ("train", "in_domain", "ood", "all", *LISTS)
MOST_NAMED = 8
"""Largest number of unreadable files that get a warning each."""
UNPLAYABLE = "unplayable"
"""Key of a task's data with the reason why it cannot be played."""
_ID = re.compile(r"[\w-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ListedTask:
    """A task of a list, and the obstacle to it."""

    application: str
    id: str
    example: dict[str, Any]
    """The file's content; empty if it cannot be read."""
    obstacle: Obstacle | None

    def task(self) -> Task:
        """Returns the task; one that cannot be played has the reason in its data."""
        example = self.example
        if self.obstacle is not None:
            instruction = example.get("instruction", "")
            return Task(self.id, instruction, self.application, {UNPLAYABLE: self.obstacle.reason})
        plain = {key: value for key, value in example.items() if key not in KEYS}
        data = {"example": plain, "files": {}, **prepared(example)}
        return Task(self.id, example["instruction"], self.application, data)


def dataset_tasks(
    folder: Path, split: str, count: int, seed: int, online: bool = False
) -> list[Task]:
    """Returns `count` tasks of a split, or all playable ones if there are fewer.

    `train` and `in_domain` are the same tasks, as in the paper; `ood`: tasks with a browser and
    with several applications. Tasks that cannot be played are omitted and logged, except in the
    splits `LISTS`, in which they stay with the reason in their data. `online`: the machines have
    internet access; then tasks that need files on the host are omitted.

    A file that cannot be read gets a warning. Raises `DomainError` for an invalid folder or list,
    and if no task can be played."""
    if split not in SPLITS:
        raise DomainError(f"unknown split {split!r}: use one of {', '.join(SPLITS)}")
    listed = listed_tasks(folder, split if split in LISTS else LISTS[0], online)
    if split not in ("all", *LISTS):
        listed = [each for each in listed if (each.application in HELD_OUT) == (split == "ood")]
    obstacles = [each.obstacle for each in listed if each.obstacle is not None]
    playable = [each for each in listed if each.obstacle is None]
    if not playable and obstacles:
        if all(each.kind == "unreadable" for each in obstacles):
            raise DomainError(obstacles[0].reason)
        raise DomainError(
            f"{folder}: no task of split {split} can be played here: {_totals(obstacles)}; "
            f"{_remedy(folder)}"
        )
    if obstacles:
        log.warning("%d tasks cannot be played here: %s", len(obstacles), _totals(obstacles))
        log.warning("%s", _remedy(folder))
        faults = [each.reason for each in obstacles if each.kind == "unreadable"]
        for fault in _some(faults):
            warn_of_damage(fault)
    kept = listed if split in LISTS else playable
    random.Random(derive(seed, "osworld", split)).shuffle(kept)
    return [each.task() for each in kept[:count]]


def listed_tasks(folder: Path, name: str = LISTS[0], online: bool = False) -> list[ListedTask]:
    """Returns all tasks of a list, in its order. A file that cannot be read is an obstacle to its
    own task only. `online`: see `obstacle`. Raises `DomainError` for an invalid folder or list."""
    root, examples = _places(folder)
    tasks = list[ListedTask]()
    for application, task_id in _listed(root / f"{name}.json"):
        path = examples / application / f"{task_id}.json"
        if not path.is_file():
            path = root / "examples" / application / path.name
        try:
            example = _example(path, task_id)
        except DomainError as fault:
            tasks.append(ListedTask(application, task_id, {}, Obstacle("unreadable", str(fault))))
            continue
        barred = obstacle(example, application, root / "cache" / task_id, online)
        tasks.append(ListedTask(application, task_id, example, barred))
    return tasks


def _totals(obstacles: Sequence[Obstacle]) -> str:
    counts = Counter(each.kind for each in obstacles)
    return ", ".join(f"{counts[kind]} {words}" for kind, words in KINDS.items() if kind in counts)


def _remedy(folder: Path) -> str:
    command = f"python -m rlanything_osworld.dataset {folder}"
    return f"`{command}` names each, with its files and their places"


def _some(names: Sequence[str]) -> list[str]:
    rest = len(names) - MOST_NAMED
    return [*names[:MOST_NAMED], *([f"and {rest} more"] if rest > 0 else [])]


def downloads(folder: Path) -> Path | None:
    """Returns the folder of files that tasks would download, or None."""
    cache = _places(folder)[0] / "cache"
    return cache if cache.is_dir() else None


def _places(folder: Path) -> tuple[Path, Path]:
    """Returns the folder of the list and the cache, and the folder of the tasks."""
    for root in (folder, folder / "evaluation_examples"):
        if (root / "test_all.json").is_file():
            return root, root / "examples"
    if folder.is_dir() and (folder.parent / "test_all.json").is_file():
        return folder.parent, folder
    raise MissingData(
        f"{folder} holds no test_all.json: give the folder evaluation_examples of OSWorld"
    )


def _listed(path: Path) -> Iterator[tuple[str, str]]:
    """Yields application and id of every task in a list."""
    listed = _json(path)
    if not isinstance(listed, dict) or not all(isinstance(ids, list) for ids in listed.values()):
        raise DomainError(f"{path}: not a list of ids for each application: download it again")
    for application, ids in listed.items():
        for name in ids:
            if not isinstance(name, str) or not _ID.fullmatch(f"{name}{application}"):
                raise DomainError(f"{path}: {name!r} is not a task id: download it again")
            yield application, name


def _example(path: Path, name: str) -> dict[str, Any]:
    example = _json(path)
    kinds = {"instruction": str, "config": list, "evaluator": dict}
    if not isinstance(example, dict) or example.get("id") != name:
        raise DomainError(f"{path}: no task with the id {name}: download it again")
    example = {"config": [], **example}  # desktop_env adds it too
    for key, kind in kinds.items():
        if not isinstance(example.get(key), kind):
            raise DomainError(f"{path}: {key!r} is missing or of another kind: download it again")
    if "func" not in example["evaluator"]:
        raise DomainError(f"{path}: 'evaluator' has no func: download it again")
    for step in example["config"]:
        if not isinstance(step, dict) or not isinstance(step.get("type"), str):
            raise DomainError(f"{path}: a step of 'config' has no type: download it again")
    try:
        prepared(example)
    except ValueError as fault:
        raise DomainError(f"{path}: {fault}: see packages/rlanything-osworld/README.md") from fault
    return example


def _json(path: Path) -> Any:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
        return value
    except OSError as error:
        raise MissingData(f"{path} cannot be read ({error.strerror}): download it") from error
    except (ValueError, RecursionError) as error:
        raise DomainError(f"{path} is not JSON ({error}): download it again") from error


def main(arguments: Sequence[str]) -> None:
    """Prints the tasks of a list: the obstacle to each, and its missing files. Raises
    `DomainError`."""
    name = arguments[1] if len(arguments) > 1 else LISTS[0]
    if len(arguments) not in (1, 2) or name not in LISTS:
        lists = "|".join(LISTS)
        raise DomainError(f"usage: python -m rlanything_osworld.dataset FOLDER [{lists}]")
    listed = listed_tasks(Path(arguments[0]), name)
    for task in listed:
        barred = task.obstacle
        reason = "can be played" if barred is None else barred.reason
        write_line(f"{task.application}/{task.id}: {reason}")
        for file in barred.files if barred else ():
            write_line(f"  {file.url} -> cache/{task.id}/{file.name}")
    obstacles = [each.obstacle for each in listed if each.obstacle is not None]
    playable = len(listed) - len(obstacles)
    rest = f"; {_totals(obstacles)}" if obstacles else ""
    write_line(f"{playable} of {len(listed)} can be played{rest}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except DomainError as fault:
        write_line(f"error: {fault}", stderr=True)
        sys.exit(2)
