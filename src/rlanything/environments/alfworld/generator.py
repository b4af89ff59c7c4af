"""Games made from the rooms AlfWorld ships: a seeded scene, and a goal that the scene allows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from rlanything.environments.alfworld import assets
from rlanything.environments.alfworld.game import Game
from rlanything.environments.alfworld.goal import KINDS, LOOK, Goal, static_objection
from rlanything.environments.alfworld.pddl import write_scene
from rlanything.environments.alfworld.scene import (
    SMALL_OBJECTS,
    SMALL_RECEPTACLES,
    Range,
    Scene,
    ScenePlan,
    build_scene,
)
from rlanything.environments.base import DomainError


def generate(
    room: str,
    seed: int,
    kind: str | None = None,
    receptacles: Range | None = SMALL_RECEPTACLES,
    objects: Range | None = SMALL_OBJECTS,
) -> Game:
    """A game of the given task type (None: any the scene allows).

    Raises `DomainError` if the room is unknown or the scene allows no such goal."""
    plan = ScenePlan(room, seed, receptacles, objects)
    goals = open_goals(build_scene(plan), KINDS if kind is None else (kind,))
    if not goals:
        raise DomainError(f"{room} with seed {seed} allows no {kind or 'goal'}: try another seed")
    rng = random.Random(f"goal/{room}/{seed}/{kind}")
    chosen = rng.choice(sorted({goal.kind for goal in goals}))
    return game_of(plan, rng.choice([goal for goal in goals if goal.kind == chosen]))


def game_of(plan: ScenePlan, goal: Goal) -> Game:
    """The game that asks for a goal in a planned scene."""
    variant = plan.seed
    sentence = goal.sentence(variant)
    return Game(
        scene_pddl=write_scene(build_scene(plan)),
        goal=goal,
        goal_pddl=goal.pddl(),
        instruction=sentence,
        pddl_domain=assets.pddl_domain(),
        grammar=assets.grammar().replace("UNKNOWN GOAL", sentence),
        variant=variant,
        room=plan.room,
    )


@lru_cache(maxsize=1024)
def open_goals(scene: Scene, kinds: Sequence[str] = KINDS) -> tuple[Goal, ...]:
    """Every goal the scene allows that is not already reached, in a fixed order."""
    counts = Counter(thing.type for thing in scene.objects)
    homes = Counter((thing.type, thing.receptacle.id) for thing in scene.objects)
    places = {receptacle.type for receptacle in scene.receptacles}
    appliance = {
        "pick_clean_then_place_in_recep": "SinkBasin",
        "pick_heat_then_place_in_recep": "Microwave",
        "pick_cool_then_place_in_recep": "Fridge",
    }
    found: list[Goal] = []
    for kind in kinds:
        if kind in appliance and appliance[kind] not in places:
            continue
        lamps = sorted(assets.affording("Toggleable").intersection(counts))
        for thing in sorted(assets.pickable_types().intersection(counts)):
            for place in lamps if kind == LOOK else sorted(places):
                goal = Goal(kind, thing, place)
                if counts[thing] < goal.count or static_objection(goal):
                    continue
                reached = any(
                    homes[thing, receptacle.id] >= goal.count
                    for receptacle in scene.receptacles
                    if receptacle.type == place
                )
                if kind in appliance or kind == LOOK or not reached:
                    found.append(goal)
    return tuple(found)
