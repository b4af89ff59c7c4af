"""Ground truth for single steps: whether a step helped, given what the agent could know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy

from rlanything_alfworld.expert import steps_left
from rlanything_alfworld.game import Game
from rlanything_alfworld.goal import LOOK, Goal
from rlanything_alfworld.world import World


def step_labels(game: Game, actions: Sequence[str | None], valid: Sequence[bool]) -> list[int]:
    """Returns +1 or -1 for each step of an episode.

    A step is good if it shortens the expert's plan. It is also good if it explores (goes to a
    receptacle or opens one for the first time) while something that the goal needs has not been
    shown yet. All other steps are bad, including invalid actions and everything in a dead end."""
    if len(actions) != len(valid):
        raise ValueError(f"{len(actions)} actions, but {len(valid)} validity flags")
    world = game.world()
    left = steps_left(world, game.goal)
    labels: list[int] = []
    for action, accepted in zip(actions, valid, strict=True):
        before = copy(world)
        if action is None or not accepted or not world.play(action):
            labels.append(-1)
            continue
        now = steps_left(world, game.goal)
        searched = needs_search(before, game.goal) and _explores(before, action)
        labels.append(1 if now < left or (searched and now < math.inf) else -1)
        left = now
    return labels


def needs_search(world: World, goal: Goal) -> bool:
    """Returns whether something that the goal needs has not been shown to the agent yet."""
    shown = sum(name in world.seen for name in world.setting.objects_of(goal.object.lower()))
    if shown < goal.count:
        return True
    lamps = world.setting.objects_of(goal.receptacle.lower()) if goal.kind == LOOK else []
    return bool(lamps) and not world.seen.intersection(lamps)


def _explores(before: World, action: str) -> bool:
    verb, _, place = action.partition(" ")
    if verb == "go":
        return place.removeprefix("to ") not in before.visited
    return verb == "open" and place not in before.opened_before
