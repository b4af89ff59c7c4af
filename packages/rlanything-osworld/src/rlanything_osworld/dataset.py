"""OSWorld's own tasks, read from a folder in its downloaded form.

    test_all.json              applications, each with the ids of its tasks
    examples/APP/ID.json       a task: id, instruction, config, evaluator, and perhaps goals.KEYS
    cache/ID/...               files that the task downloads, as left by OSWorld's own runs

The folder may also contain these in `evaluation_examples`. It may also be a folder next to
`examples` that replaces it, such as the paper's `new_examples`.
"""

from __future__ import annotations

import json
import logging
import random
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlanything.domains.base import DomainError, MissingData
from rlanything.records import Task
from rlanything.seeds import derive
from rlanything_osworld.goals import KEYS, prepared

log = logging.getLogger(__name__)
HELD_OUT = frozenset({"chrome", "multi_apps"})
"""The applications that the paper excludes from training."""
SPLITS = ("train", "in_domain", "ood", "all")
MOST_NAMED = 8
"""Largest number of tasks named in one line of the log."""
_ID = re.compile(r"[\w-]+", re.ASCII)
_OUTSIDE = re.compile(r"https?://(?!localhost\b|127\.0\.0\.1\b)")


def dataset_tasks(
    folder: Path, split: str, count: int, seed: int, online: bool = False
) -> list[Task]:
    """Returns `count` tasks of a split, or all playable ones if there are fewer.

    `train` and `in_domain` are the same tasks, as in the paper; `ood`: tasks with a browser and
    with several applications. Tasks that need the internet are omitted and logged. `online`: the
    machines have internet access; then tasks that need files on the host are omitted. Invalid task
    files are omitted and logged too.

    Raises `DomainError` for an invalid folder or list, and if no task is left."""
    if split not in SPLITS:
        raise DomainError(f"unknown split {split!r}: use one of {', '.join(SPLITS)}")
    root, examples = _places(folder)
    tasks = list[Task]()
    skipped = list[str]()
    faults = list[DomainError]()
    for application, name in _listed(root):
        if split != "all" and (application in HELD_OUT) != (split == "ood"):
            continue
        try:
            example = _example(examples / application / f"{name}.json", name)
        except DomainError as fault:
            faults.append(fault)
            continue
        if needs_internet(example, root / "cache" / example["id"], online):
            skipped.append(f"{application}/{example['id']}")
            continue
        plain = {key: value for key, value in example.items() if key not in KEYS}
        data = {"example": plain, "files": {}, **prepared(example)}
        tasks.append(Task(example["id"], example["instruction"], application, data))
    if skipped:
        log.warning("%d tasks need the internet: %s", len(skipped), ", ".join(_some(skipped)))
    if faults:
        log.warning("%d files of tasks are left out: %s", len(faults), _first(faults))
    if not tasks and faults and not skipped:
        raise faults[0]
    if not tasks:
        raise DomainError(
            f"{examples}: no task of split {split} can be played without the internet: put what "
            "tasks download into cache/ID"
        )
    random.Random(derive(seed, "osworld", split)).shuffle(tasks)
    return tasks[:count]


def _first(faults: Sequence[DomainError]) -> str:
    rest = len(faults) - 1
    return f"{faults[0]}{f'; and {rest} more' if rest else ''}"


def _some(names: Sequence[str]) -> list[str]:
    rest = len(names) - MOST_NAMED
    return [*names[:MOST_NAMED], *([f"and {rest} more"] if rest > 0 else [])]


def downloads(folder: Path) -> Path | None:
    """Returns the folder of files that tasks would download, or None."""
    cache = _places(folder)[0] / "cache"
    return cache if cache.is_dir() else None


def needs_internet(example: Mapping[str, Any], cache: Path, online: bool = False) -> bool:
    """Returns whether a task needs anything from outside that is not in `cache`. `online`: the
    machines have internet access, so only files that the host would fetch count."""
    asked = [example["config"], example["evaluator"], example.get("evaluator_list")]
    if (example.get("proxy") and not online) or "googledrive" in json.dumps(asked):
        return True
    return _outside(asked, cache, online)


def _outside(value: Any, cache: Path, online: bool) -> bool:
    if isinstance(value, str):
        return not online and _OUTSIDE.search(value) is not None
    if isinstance(value, list):
        return any(_outside(each, cache, online) for each in value)
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("url"), str) and isinstance(value.get("path"), str):
        # A file that the set-up downloads; the name is the one in desktop_env's own cache.
        name = Path(value["path"]).name
        if (cache / f"{uuid.uuid5(uuid.NAMESPACE_URL, value['url'])}_{name}").is_file():
            return False
        if _OUTSIDE.search(value["url"]):
            return True
    if value.get("type") == "cloud_file":
        names = value.get("dest")
        names = names if isinstance(names, list) else [names]
        if all((cache / str(name)).is_file() for name in names):
            return False
        online = False  # the host would fetch it
    return any(_outside(each, cache, online) for each in value.values())


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


def _listed(root: Path) -> Iterator[tuple[str, str]]:
    """Yields application and id of every task in the list."""
    listed = _json(root / "test_all.json")
    if not isinstance(listed, dict) or not all(isinstance(ids, list) for ids in listed.values()):
        raise DomainError(
            f"{root / 'test_all.json'}: not a list of ids for each application: download it again"
        )
    for application, ids in listed.items():
        for name in ids:
            if not isinstance(name, str) or not _ID.fullmatch(f"{name}{application}"):
                raise DomainError(
                    f"{root / 'test_all.json'}: {name!r} is not a task id: download it again"
                )
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
    try:
        prepared(example)
    except ValueError as fault:
        raise DomainError(f"{path}: {fault}: see packages/rlanything-osworld/README.md") from fault
    return example


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingData(f"{path} cannot be read ({error.strerror}): download it") from error
    except (ValueError, RecursionError) as error:
        raise DomainError(f"{path} is not JSON ({error}): download it again") from error
