"""The expert wins every game from anywhere, and never wastes a command."""

from __future__ import annotations

import random

import pytest

from helpers.playable import BATHROOM, BEDROOM, KITCHEN, games
from rlanything_alfworld.expert import (
    NoPlanError,
    Subgoal,
    next_subgoal,
    plan,
    reached,
)
from rlanything_alfworld.generator import generate
from rlanything_alfworld.goal import CLEAN, HEAT, KINDS, LOOK, SIMPLE, TWO, Goal
from rlanything_alfworld.world import World

ROOMS = {LOOK: ("FloorPlan308", BEDROOM), CLEAN: (KITCHEN, BATHROOM), HEAT: (KITCHEN, "FloorPlan9")}


@pytest.mark.parametrize("kind", KINDS)
def test_every_generated_game_of_a_batch_is_won_on_the_engine(engine, kind):
    for room in ROOMS.get(kind, ("FloorPlan15", "FloorPlan11")):
        for game in games(kind, 6, room):
            engine.load(game.json())
            progress = engine.reset()
            assert not progress.won
            for command in plan(World(game.scene_pddl), game.goal):
                assert not progress.won
                assert command in progress.commands
                progress = engine.step(command)
            assert progress.won


def test_the_expert_recovers_from_random_play_on_the_engine(engine):
    rng = random.Random(5)
    for kind in KINDS:
        for game in games(kind, 3):
            engine.load(game.json())
            progress, world = engine.reset(), World(game.scene_pddl)
            for _ in range(25):
                eager = [c for c in progress.commands if c.startswith(("take", "move", "open"))]
                command = rng.choice(eager if eager and rng.random() < 0.5 else progress.commands)
                progress = engine.step(command)
                world.play(command)
            for command in plan(world, game.goal):
                progress = engine.step(command)
            assert progress.won


@pytest.mark.parametrize("kind", KINDS)
def test_no_single_command_saves_more_than_one_step_so_plans_are_shortest(kind):
    # A length that is 0 exactly at the goal, reachable, and falls by at most 1 per command is the
    # distance to the goal.
    rng = random.Random(kind)
    for game in games(kind, 5):
        world = World(game.scene_pddl)
        for _ in range(12):
            length = len(plan(world, game.goal))
            assert (length == 0) == reached(world, game.goal)
            choices = world.admissible()
            for command in choices:
                after = world.after([command])
                rest = plan(after, game.goal)
                assert len(rest) >= length - 1
                assert reached(after.after(rest), game.goal)
            world.play(rng.choice(choices))


def test_full_rooms_are_planned_too():
    for room in (KITCHEN, "FloorPlan215", BEDROOM, BATHROOM):
        game = generate(room, 2, receptacles=None, objects=None)
        world = World(game.scene_pddl)
        assert reached(world.after(plan(world, game.goal)), game.goal)


def test_a_goal_about_things_that_are_not_there_has_no_plan():
    game = next(iter(games(SIMPLE, 1)))
    absent = Goal.of(SIMPLE, "pillow", "sofa")
    with pytest.raises(NoPlanError, match="pillow"):
        plan(World(game.scene_pddl), absent)


def subgoals_on_the_way(game) -> list[Subgoal]:
    world = World(game.scene_pddl)
    met: list[Subgoal] = []
    for command in [*plan(world, game.goal), "look"]:
        met.append(next_subgoal(world, game.goal))
        world.play(command)
    return met


def test_subgoals_lead_from_finding_to_bringing():
    for game in games(CLEAN, 5):
        thing, place = game.goal.object.lower(), game.goal.receptacle.lower()
        met = list(dict.fromkeys(subgoals_on_the_way(game)))
        assert met[0] == Subgoal("find", thing)
        assert met[-3:] == [
            Subgoal("clean", thing, "sinkbasin"),
            Subgoal("bring", thing, place),
            Subgoal(""),
        ]


def test_a_lamp_not_yet_seen_is_sought_before_it_is_used():
    verbs = [subgoal.verb for game in games(LOOK, 8) for subgoal in subgoals_on_the_way(game)]
    assert {"find", "take", "use"} <= set(verbs)


def test_something_else_in_hand_is_dropped_once_the_object_is_known():
    game = next(iter(games(SIMPLE, 1)))
    world = World(game.scene_pddl)
    wanted = world.setting.objects_of(game.goal.object.lower())
    home = world.places_of(wanted[0])[0]
    world.play(f"go to {home}")
    world.play(f"open {home}")
    assert next_subgoal(world, game.goal).verb == "take"
    other = next(
        name
        for name in sorted(world.setting.affords["pickupable"])
        if world.setting.objects[name] != game.goal.object.lower()
    )
    place = world.places_of(other)[0]
    for command in (f"go to {place}", f"open {place}", f"take {other} from {place}"):
        world.play(command)
    assert next_subgoal(world, game.goal) == Subgoal("drop", world.setting.objects[other])


def test_a_second_object_is_sought_after_the_first_is_placed():
    found = [subgoal.verb for game in games(TWO, 6) for subgoal in subgoals_on_the_way(game)]
    assert found.count("bring") >= 6
    assert "find" in found
