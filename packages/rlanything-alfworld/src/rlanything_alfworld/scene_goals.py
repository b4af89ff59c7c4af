"""Goals that a scene allows, and games rewritten to another goal."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from rlanything.domains.base import InvalidTask
from rlanything_alfworld import assets
from rlanything_alfworld.expert import NoPlanError, plan, reached, steps_left
from rlanything_alfworld.game import Game
from rlanything_alfworld.goal import KINDS, LOOK, TREATMENTS, Goal
from rlanything_alfworld.world import APPLIANCES, World

__all__ = [
    "KINDS",
    "Goal",
    "Inventory",
    "goal_objection",
    "rewrite",
    "scene_goals",
    "scene_inventory",
    "valid_goals",
]

_VERBS = {"Cleanable": "clean", "Heatable": "heat", "Coolable": "cool"}


@dataclass(frozen=True, slots=True)
class Inventory:
    """Contents of a scene at the start of a game, in the player's words."""

    objects: Mapping[str, tuple[str, ...]]
    """Object type -> the receptacle of each instance: `{"mug": ("shelf 1", "fridge 1")}`."""
    receptacles: Mapping[str, int]
    """Receptacle type -> number of receptacles."""
    contents: Mapping[str, tuple[str, ...]]
    """Receptacle type -> types of objects in the scene that it can hold."""
    affords: Mapping[str, tuple[str, ...]]
    """`cleanable`, `heatable`, `coolable`, ... -> types of objects in the scene with that
    property."""


def scene_inventory(game: Game) -> Inventory:
    """Returns everything in the game's scene, types in alphabetical order."""
    world = game.world()
    setting = world.setting
    kinds = world.setting.objects
    where: defaultdict[str, list[str]] = defaultdict(list)
    for thing, place in sorted(world.inside):
        where[kinds[thing]].append(place)
    receptacles = dict(sorted(Counter(setting.receptacles.values()).items()))
    return Inventory(
        objects={kind: tuple(where[kind]) for kind in sorted(where)},
        receptacles=receptacles,
        contents={
            place: tuple(kind for kind in sorted(where) if (place, kind) in setting.can_contain)
            for place in receptacles
        },
        affords={
            what: tuple(sorted({kinds[name] for name in names}))
            for what, names in setting.affords.items()
        },
    )


def goal_objection(world: World, goal: Goal) -> str | None:
    """Returns why the goal is no valid task in this scene, or None if it is. `world` is the initial
    state."""
    setting = world.setting
    thing, place = goal.object.lower(), goal.receptacle.lower()
    present = [name for name in setting.objects_of(thing) if name in setting.affords["pickupable"]]
    if not present:
        return f"there is no {thing} to take in the scene"
    if len(present) < goal.count:
        return f"the task needs {goal.count} of {thing}, the scene has {len(present)}"
    if goal.kind == LOOK:
        lamps = setting.objects_of(place)
        if not any(lamp in setting.affords["toggleable"] for lamp in lamps):
            return f"there is no {place} in the scene"
    else:
        if not setting.receptacles_of(place):
            return f"there is no {place} in the scene"
        if (place, thing) not in setting.can_contain:
            return f"a {place} cannot contain a {thing}"
    if goal.kind in TREATMENTS:
        affordance = TREATMENTS[goal.kind]
        verb = _VERBS[affordance]
        if not any(name in setting.affords[affordance.lower()] for name in present):
            return f"one cannot {verb} a {thing}"
        if not setting.receptacles_of(APPLIANCES[verb]):
            return f"there is no {APPLIANCES[verb]} to {verb} with in the scene"
    if reached(world, goal):
        return "the goal is already reached at the start"
    return None


@lru_cache(maxsize=1024)
def scene_goals(scene_pddl: str, kind: str) -> tuple[Goal, ...]:
    """Returns every goal of a task type that the scene allows, in alphabetical order."""
    world = World(scene_pddl)
    things = _present(assets.pickable_types(), world.setting.objects.values())
    if kind == LOOK:
        places = _present(assets.affording("Toggleable"), world.setting.objects.values())
    else:
        places = _present(assets.receptacle_types(), world.setting.receptacles.values())
    goals = (Goal(kind, thing, place) for thing in things for place in places)
    return tuple(goal for goal in goals if goal_objection(world, goal) is None)


def _present(types: frozenset[str], names: Iterable[str]) -> list[str]:
    lower = set(names)
    return sorted(kind for kind in types if kind.lower() in lower)


def valid_goals(game: Game) -> tuple[Goal, ...]:
    """Returns every goal to which the game can be rewritten: same task type, another object or
    place, and a plan that reaches it (in whole rooms some objects are out of reach)."""
    world = game.world()
    goals = scene_goals(game.scene_pddl, game.goal.kind)
    return tuple(g for g in goals if g != game.goal and steps_left(world, g) < math.inf)


def rewrite(game: Game, goal: Goal) -> Game:
    """Returns the same scene with another goal of the same task type.

    Raises `InvalidTask` with the reason if that is no valid task."""
    if goal.kind != game.goal.kind:
        raise InvalidTask(f"the task type must stay {game.goal.kind}, not {goal.kind}")
    if goal == game.goal:
        raise InvalidTask("the goal is unchanged")
    world = game.world()
    reason = goal_objection(world, goal)
    if reason is not None:
        raise InvalidTask(reason)
    try:
        plan(world, goal)
    except NoPlanError as error:
        raise InvalidTask(str(error), "unsolvable") from error
    return game.asking(goal)
