"""The symbolic state agrees with the engine."""

from __future__ import annotations

import random
from copy import copy
from dataclasses import replace

import pytest

from helpers.playable import BATHROOM, KITCHEN, games
from rlanything_alfworld.expert import reached
from rlanything_alfworld.generator import generate
from rlanything_alfworld.goal import KINDS, SIMPLE
from rlanything_alfworld.pddl import read_facts
from rlanything_alfworld.world import World

DOING = ("take", "move", "open", "heat", "cool", "clean", "use", "slice")


@pytest.mark.parametrize("kind", KINDS)
def test_random_play_offers_the_same_commands_as_the_engine(engine, kind):
    rng = random.Random(kind)
    for game in games(kind, 4):
        engine.load(game.json())
        progress, world = engine.reset(), World(game.scene_pddl)
        for _ in range(40):
            assert world.admissible() == list(progress.commands)
            assert reached(world, game.goal) == progress.won
            eager = [command for command in progress.commands if command.startswith(DOING)]
            command = rng.choice(eager if eager and rng.random() < 0.6 else list(progress.commands))
            progress = engine.step(command)
            assert world.play(command)


def test_random_play_in_a_whole_bathroom_offers_the_same_commands_as_the_engine(engine):
    game = generate(BATHROOM, 1, receptacles=None, objects=None)
    rng = random.Random(0)
    engine.load(game.json())
    progress, world = engine.reset(), World(game.scene_pddl)
    for _ in range(60):
        assert world.admissible() == list(progress.commands)
        command = rng.choice(progress.commands)
        progress = engine.step(command)
        world.play(command)


def test_impossible_commands_are_refused_and_change_nothing():
    world = World(generate(KITCHEN, 1).scene_pddl)
    before = world.admissible()
    for command in ("take mug 1 from nowhere 1", "heat", "", "go to moon 1", "open fridge 1"):
        assert not world.play(command)
    assert world.admissible() == before


def test_copies_are_independent():
    world = World(generate(KITCHEN, 1).scene_pddl)
    twin = copy(world)
    assert twin.play("go to fridge 1")
    assert twin.play("open fridge 1")
    assert world.admissible() == World(generate(KITCHEN, 1).scene_pddl).admissible()
    assert "fridge 1" not in world.visited
    assert "fridge 1" in twin.opened_before


def test_contents_are_seen_on_arrival_or_once_opened_and_not_before():
    for seed in range(200):
        world = World(generate(KITCHEN, seed).scene_pddl)
        hidden = world.contents("fridge 1")
        if hidden:
            break
    else:
        raise AssertionError("no seed fills the fridge")
    assert not world.seen
    world.play("go to fridge 1")
    assert not world.seen.intersection(hidden)
    world.play("open fridge 1")
    assert world.seen.issuperset(hidden)


def test_heating_undoes_cooling():
    for seed in range(300):
        world = World(generate(KITCHEN, seed).scene_pddl)
        both = world.setting.affords["heatable"] & world.setting.affords["coolable"]
        thing = next((name for name in sorted(both)), None)
        if thing is not None:
            break
    else:
        raise AssertionError("no seed has such an object")
    home = world.places_of(thing)[0]
    world.play(f"go to {home}")
    world.play(f"open {home}")
    assert world.play(f"take {thing} from {home}")
    for verb, place in (("cool", "fridge 1"), ("heat", "microwave 1")):
        world.play(f"go to {place}")
        assert world.play(f"{verb} {thing} with {place}")
    assert ("hot", thing) in world.state
    assert ("cool", thing) not in world.state


def test_receptacles_that_share_a_standing_point_are_played_as_the_engine_plays_them(engine):
    game = games(SIMPLE, 1)[0]
    places = sorted(
        {fact[2] for fact in read_facts(game.scene_pddl) if fact[0] == "receptacleatlocation"}
    )
    text = game.scene_pddl.replace(places[0], places[1]).replace(places[2], places[1])
    # One declaration per location is enough.
    text = text.replace(f"{places[1]} - location\n", "", 2)
    game = replace(game, scene_pddl=text)
    rng = random.Random(1)
    engine.load(game.json())
    progress, world = engine.reset(), World(text)
    assert len(set(world.setting.location.values())) == len(world.setting.location) - 2
    for _ in range(80):
        assert world.admissible() == list(progress.commands)
        assert reached(world, game.goal) == progress.won
        near = [c for c in progress.commands if c.startswith(DOING) or c.startswith("open")]
        command = rng.choice(near if near and rng.random() < 0.7 else progress.commands)
        progress = engine.step(command)
        world.play(command)
