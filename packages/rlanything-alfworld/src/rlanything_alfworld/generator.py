"""Generated games: a seeded scene in one of AlfWorld's rooms, and a goal that the scene allows."""

from __future__ import annotations

import random

from rlanything.domains.base import DomainError
from rlanything_alfworld import assets
from rlanything_alfworld.game import Game
from rlanything_alfworld.goal import KINDS, Goal
from rlanything_alfworld.pddl import write_scene
from rlanything_alfworld.scene import (
    SMALL_OBJECTS,
    SMALL_RECEPTACLES,
    Range,
    ScenePlan,
    build_scene,
)
from rlanything_alfworld.scene_goals import scene_goals


def generate(
    room: str,
    seed: int,
    kind: str | None = None,
    receptacles: Range | None = SMALL_RECEPTACLES,
    objects: Range | None = SMALL_OBJECTS,
) -> Game:
    """Returns a game of the given task type (None: any that the scene allows).

    Raises `DomainError` if the room is unknown or the scene allows no such goal."""
    plan = ScenePlan(room, seed, receptacles, objects)
    scene = write_scene(build_scene(plan))
    choices = [scene_goals(scene, name) for name in ((kind,) if kind else KINDS)]
    allowed = [goals for goals in choices if goals]
    if not allowed:
        raise DomainError(f"{room} with seed {seed} allows no {kind or 'goal'}: try another seed")
    rng = random.Random(f"goal/{room}/{seed}/{kind}")
    return game_of(plan, rng.choice(rng.choice(allowed)))


def game_of(plan: ScenePlan, goal: Goal) -> Game:
    """Returns the game with this goal in a planned scene."""
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
