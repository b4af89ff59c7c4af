"""Tasks as small JSON, their splits, and their games.

| split     | rooms                                     | goals (task type, object, receptacle)    |
|-----------|-------------------------------------------|------------------------------------------|
| train     | kitchens, living rooms, bedrooms 7-26     | seven tenths of all                      |
| tune      | 27-30 of the same families                | one tenth, never in train                |
| in_domain | 1-6 of the same families (AlfWorld's test)| two tenths, never in train               |
| ood       | bathrooms: a family never trained on      | any that no training room could ask for  |

A goal's tenth is derived from a hash of its words, so the splits cannot overlap for any seed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from rlanything.domains.base import DomainError, InvalidTask
from rlanything.records import Task
from rlanything_alfworld import assets
from rlanything_alfworld.dataset import held_out, read_game
from rlanything_alfworld.game import Game
from rlanything_alfworld.generator import game_of
from rlanything_alfworld.goal import KINDS, Goal
from rlanything_alfworld.pddl import write_scene
from rlanything_alfworld.scene import (
    SMALL_OBJECTS,
    SMALL_RECEPTACLES,
    Range,
    ScenePlan,
    build_scene,
    room_types,
)
from rlanything_alfworld.scene_goals import rewrite, scene_goals, valid_goals

TRAINED_FAMILIES = ("Kitchen", "LivingRoom", "Bedroom")
HELD_OUT_FAMILY = "Bathroom"
# Positions within a family's thirty rooms.
ROOMS = {"train": range(6, 26), "tune": range(26, 30), "in_domain": range(6), "ood": range(30)}
SPLITS = tuple(ROOMS)
_SEEDS = 2**31
_TRIES = 500
"""Scenes to try for one task; unless rooms are tiny, about every second one works."""


def goal_split(goal: Goal) -> str:
    """Returns the split among train, tune and in_domain that owns a goal."""
    words = f"{goal.kind}/{goal.object}/{goal.receptacle}".encode()
    tenth = int.from_bytes(hashlib.sha256(words).digest()[:4], "big") % 10
    return "train" if tenth < 7 else "tune" if tenth < 8 else "in_domain"


def tasks(
    split: str,
    count: int,
    seed: int,
    receptacles: Range | None = SMALL_RECEPTACLES,
    objects: Range | None = SMALL_OBJECTS,
    kinds: Sequence[str] = KINDS,
) -> list[Task]:
    """Returns `count` different generated tasks of a split, with equal shares of the task types.

    Raises `DomainError` for an unknown split, one without the wanted task types, and scenes that
    are too small for them."""
    if split not in SPLITS:
        raise DomainError(f"unknown split {split!r}: use one of {', '.join(SPLITS)}")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise DomainError(f"unknown task type {unknown[0]!r}: use some of {', '.join(KINDS)}")
    rooms = {kind: _rooms(split, kind) for kind in KINDS if kind in kinds}
    possible = [kind for kind, numbers in rooms.items() if numbers]
    if not possible:
        raise DomainError(f"split {split!r} has none of {', '.join(kinds)}: allow other task types")
    rng = random.Random(f"{split}/{seed}")
    made: dict[str, Task] = {}
    order: list[str] = []
    while len(made) < count:
        if not order:
            order = rng.sample(possible, len(possible))
        kind = order.pop()
        for _ in range(_TRIES):
            room = rng.choice(rooms[kind])
            plan = ScenePlan(room, rng.randrange(_SEEDS), receptacles, objects)
            task = _draw(split, kind, plan, rng)
            if task is not None and task.id not in made:
                made[task.id] = task
                break
        else:
            raise DomainError(
                f"no scene with receptacles {receptacles} and objects {objects} allows {kind} in"
                f" split {split!r}: allow more receptacles or objects"
            )
    return list(made.values())


def _owns(split: str, goal: Goal) -> bool:
    owner = goal_split(goal)
    if split != "ood":
        return owner == split
    return owner != "train" or not _within_training(goal.object, goal.receptacle)


@lru_cache(maxsize=4096)
def _within_training(thing: str, place: str) -> bool:
    """Returns whether any training room could contain both (for goals of bathrooms: no lamps)."""
    rooms = {room for kind in KINDS for room in _rooms("train", kind)}
    return any(place in places and thing in things for places, things in map(room_types, rooms))


@lru_cache
def _rooms(split: str, kind: str) -> tuple[str, ...]:
    known = assets.constants()
    families = (HELD_OUT_FAMILY,) if split == "ood" else TRAINED_FAMILIES
    return tuple(
        f"FloorPlan{known.SCENE_TYPE[family][position]}"
        for family in families
        if family in known.GOALS_VALID[kind]
        for position in ROOMS[split]
    )


def _draw(split: str, kind: str, plan: ScenePlan, rng: random.Random) -> Task | None:
    goals = scene_goals(write_scene(build_scene(plan)), kind)
    owned = [goal for goal in goals if _owns(split, goal)]
    if not owned:
        return None
    goal = rng.choice(owned)
    identity = f"{split}-{plan.room}-{plan.seed}-{kind}-{goal.object}-{goal.receptacle}"
    return _task(identity, {"scene": plan.to_json(), "goal": goal.to_json()})


def _task(identity: str, data: Mapping[str, Any]) -> Task:
    game = load_game(data)
    return Task(id=identity, instruction=game.instruction, kind=game.goal.kind, data=data)


def with_goal(root: Task, task_id: str, goal: Goal) -> Task:
    """Returns the root task's scene with another goal. Raises `InvalidTask` with the reason."""
    rewrite(load_game(root.data), goal)
    if _held_out(root, goal):
        raise InvalidTask(f"{goal.sentence()!r} is held out for evaluation")
    return _task(task_id, {**root.data, "goal": goal.to_json()})


def candidate_goals(root: Task) -> tuple[Goal, ...]:
    """Returns every goal that `with_goal` accepts for this root task, in alphabetical order."""
    return tuple(goal for goal in valid_goals(load_game(root.data)) if not _held_out(root, goal))


def _held_out(root: Task, goal: Goal) -> bool:
    """Returns whether a goal belongs to another split, so that rewrites of training tasks must not
    use it."""
    if "path" in root.data:
        return held_out(str(root.data["path"]), goal)
    return goal_split(Goal.from_json(root.data["goal"])) == "train" != goal_split(goal)


def load_game(data: Mapping[str, Any]) -> Game:
    """Returns the game that a task's `data` describes, generated or downloaded.

    Raises `DomainError` if the data or the file it names cannot be read."""
    goal = data.get("goal")
    if "path" in data:
        game = read_game(str(data["path"]))
        return game if goal is None else game.asking(Goal.from_json(goal))
    if "scene" not in data or goal is None:
        raise DomainError(f"task data {sorted(data)} names no game: give path, or scene and goal")
    return game_of(ScenePlan.from_json(data["scene"]), Goal.from_json(goal))
