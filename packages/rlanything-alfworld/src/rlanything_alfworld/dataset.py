"""Downloaded games (`alfworld-download`) as tasks.

Expects `json_2.1.1/{train,valid_seen,valid_unseen}/<task>/<trial>/game.tw-pddl` with its
`traj_data.json`. Skips what the stock loader skips: games with movable receptacles or slices, other
task types, games without a game file, and games known to be unsolvable.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlanything.domains.base import DomainError, InvalidTask, MissingData
from rlanything.records import Task
from rlanything.terminal import warn_of_damage
from rlanything_alfworld.expert import plan
from rlanything_alfworld.game import TASK_LINE, Game
from rlanything_alfworld.goal import KINDS, LOOK, Goal
from rlanything_alfworld.pddl import split_problem
from rlanything_alfworld.wording import read_wording
from rlanything_alfworld.world import World

FOLDERS = {"train": "train", "tune": "train", "in_domain": "valid_seen", "ood": "valid_unseen"}
"""Split -> folder. `tune` is a tenth of the training tasks (by name), which `train` leaves out."""
REMEDY = "run alfworld-download again"


def dataset_tasks(
    folder: str | Path, split: str, count: int, seed: int, kinds: Sequence[str] = KINDS
) -> list[Task]:
    """Returns `count` tasks of a split (all of them if there are fewer), drawn by the seed.

    A damaged game is left out with a warning. Raises `DomainError` for a missing folder, an unknown
    split, and one without a playable game."""
    if split not in FOLDERS:
        raise DomainError(f"unknown split {split!r}: use one of {', '.join(FOLDERS)}")
    folder = games_folder(folder)
    trials = _trials(folder, split)
    random.Random(f"{split}/{seed}").shuffle(trials)
    tasks: list[Task] = []
    damage: DomainError | None = None
    for trial in trials:
        if len(tasks) >= count:
            break
        try:
            task = _task(trial, kinds)
        except DomainError as error:
            damage = damage or error
            warn_of_damage(f"{error}; it is left out")
            continue
        if task is not None:
            tasks.append(task)
    if not tasks:
        place = folder / FOLDERS[split]
        none_left = f"no playable game under {place} for split {split!r}: {REMEDY}"
        raise damage or DomainError(none_left)
    return tasks


def games_folder(folder: str | Path) -> Path:
    """Returns the folder of the games: `json_2.1.1` in the given one, or the given one."""
    inside = Path(folder) / "json_2.1.1"
    return inside if inside.is_dir() else Path(folder)


def _trials(folder: Path, split: str) -> list[Path]:
    """Returns the folders of single games in a fixed order."""
    place = folder / FOLDERS[split]
    if not place.is_dir():
        raise MissingData(
            f"no folder {place}: set domain.options.data to the folder json_2.1.1 that "
            "alfworld-download makes"
        )

    def wanted(trial: Path) -> bool:
        name = trial.relative_to(place).as_posix()
        if "movable" in name or "Sliced" in name or not (trial / "game.tw-pddl").exists():
            return False
        return FOLDERS[split] != "train" or _of_tune(trial.parent.name) == (split == "tune")

    trials = [path.parent for path in sorted(place.glob("**/traj_data.json"))]
    return [trial for trial in trials if wanted(trial)]


def _of_tune(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % 10 == 0


def held_out(path: str, goal: Goal) -> bool:
    """Returns whether a goal in the room of a downloaded `train` game makes a task of another
    split: of `tune` by its name, or one that `in_domain` contains."""
    folder = Path(path).parent.parent
    name = folder_name(path, goal)
    if folder.parent.name != FOLDERS["train"] or _of_tune(folder.name):
        return False
    return _of_tune(name) or (folder.parent.parent / FOLDERS["in_domain"] / name).is_dir()


def folder_name(path: str, goal: Goal) -> str:
    """Returns the name of the folder of a downloaded task that asks for a goal in the room of the
    game at `path`."""
    room = Path(path).parent.parent.name.rpartition("-")[2]
    return f"{goal.kind}-{goal.object}-None-{goal.receptacle}-{room}"


def _task(trial: Path, kinds: Sequence[str]) -> Task | None:
    if _type_and_room(trial)[0] not in kinds:
        return None
    path = trial / "game.tw-pddl"
    # A game that was never checked lacks `solvable`; the stock loader skips it too.
    if not _json(path, ("pddl_problem",)).get("solvable", False):
        return None
    game = read_game(str(path))
    return Task(
        id=f"{trial.parent.name}/{trial.name}",
        instruction=game.instruction,
        kind=game.goal.kind,
        data={"path": str(path), "goal": None},
    )


@lru_cache(maxsize=256)
def read_game(path: str) -> Game:
    """Returns a downloaded game. Raises `DomainError` naming the file if it is damaged."""
    file = Path(path)
    content = _json(file, ("pddl_domain", "grammar", "pddl_problem"))
    kind, room = _type_and_room(file.parent)
    sentence = TASK_LINE.search(content["grammar"])
    if sentence is None:
        raise DomainError(f"{file}: the grammar names no task: {REMEDY}")
    try:
        scene, goal_pddl = split_problem(content["pddl_problem"])
        goal = read_goal(kind, goal_pddl)
        wording = read_wording(content["grammar"])
        plan(World(scene, wording), goal)  # fail here, not in an episode
    except (ValueError, InvalidTask) as error:
        raise DomainError(f"{file}: {error}: {REMEDY}") from error
    return Game(
        scene_pddl=scene,
        goal=goal,
        goal_pddl=goal_pddl,
        instruction=sentence[2].strip().removesuffix("."),
        pddl_domain=content["pddl_domain"],
        grammar=content["grammar"],
        room=room,
        wording=wording,
    )


_TYPE = re.compile(r'(?<!\\)"task_type":\s*"(\w+)"')
_ROOM = re.compile(r'(?<!\\)"floor_plan":\s*"(\w+)"')


def _type_and_room(trial: Path) -> tuple[str, str]:
    """Returns task type and room of a trial. Its file has 200 kB and more, so the two are searched
    in its text; the file is parsed only if it does not name each exactly once."""
    path = trial / "traj_data.json"
    text = _text(path)
    kinds, rooms = _TYPE.findall(text), _ROOM.findall(text)
    if len(kinds) == len(rooms) == 1:
        return kinds[0], rooms[0]
    content = _parsed(path, text, ("task_type",))
    scene = content.get("scene")
    room = scene.get("floor_plan", "") if isinstance(scene, dict) else ""
    return str(content["task_type"]), str(room)


_OBJECT = re.compile(r"\(objectType \?(\w+) (\w+)Type\)", re.IGNORECASE)
_RECEPTACLE = re.compile(r"\(receptacleType \?\w+ (\w+)Type\)", re.IGNORECASE)


def read_goal(kind: str, goal_pddl: str) -> Goal:
    """Returns the goal in a problem's PDDL. Raises `InvalidTask` or `ValueError`."""
    objects = _OBJECT.findall(goal_pddl)
    if kind == LOOK:
        things = [name for variable, name in objects if variable.lower() != "ot"]
        places = [name for variable, name in objects if variable.lower() == "ot"]
    else:
        things = [name for _, name in objects]
        places = _RECEPTACLE.findall(goal_pddl)
    if not things or not places:
        raise ValueError("the goal names no object or no receptacle")
    return Goal.of(kind, things[0], places[0])


def _json(path: Path, keys: Sequence[str]) -> Mapping[str, Any]:
    return _parsed(path, _text(path), keys)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _parsed(path: Path, text: str, keys: Sequence[str]) -> Mapping[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise _unreadable(path, error) from error
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing:
        raise DomainError(f"{path} lacks {', '.join(missing)}: {REMEDY}")
    return content


def _unreadable(path: Path, error: Exception) -> DomainError:
    return DomainError(f"{path} is not readable ({str(error).splitlines()[0]}): {REMEDY}")
