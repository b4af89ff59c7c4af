"""Step labels: progress and needed exploration are good, everything else is not."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from helpers.playable import games
from rlanything_alfworld.expert import plan
from rlanything_alfworld.goal import KINDS, LOOK, SIMPLE, TWO
from rlanything_alfworld.step_labels import needs_search, step_labels
from rlanything_alfworld.world import World


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_of_the_expert_is_good(kind):
    for game in games(kind, 5):
        commands = plan(World(game.scene_pddl), game.goal)
        assert step_labels(game, commands, [True] * len(commands)) == [1] * len(commands)


def test_invalid_and_missing_actions_are_bad_and_change_nothing():
    game = games(SIMPLE, 1)[0]
    commands = plan(World(game.scene_pddl), game.goal)
    actions = [None, "fly to moon 1", *commands]
    valid = [False, False, *[True] * len(commands)]
    assert step_labels(game, actions, valid) == [-1, -1, *[1] * len(commands)]


def test_looking_around_again_and_again_is_bad():
    game = games(SIMPLE, 1)[0]
    assert step_labels(game, ["look", "inventory", "look"], [True] * 3) == [-1, -1, -1]


def searched(game):
    """Receptacles that neither hold the goal's object nor lie on the way."""
    world = World(game.scene_pddl)
    kind = game.goal.object.lower()
    return [
        place
        for place in world.setting.receptacles
        if not any(world.setting.objects[thing] == kind for thing in world.contents(place))
        and world.setting.receptacles[place] != game.goal.receptacle.lower()
    ]


def test_exploring_is_good_once_per_receptacle_while_the_object_is_unseen():
    game = next(game for game in games(SIMPLE, 20) if len(searched(game)) >= 2)
    first, second = searched(game)[:2]
    actions = [f"go to {first}", f"go to {second}", f"go to {first}"]
    assert step_labels(game, actions, [True] * 3) == [1, 1, -1]


def test_opening_an_unopened_receptacle_is_good_once_while_searching():
    for game in games(SIMPLE, 40):
        world = World(game.scene_pddl)
        closed = [place for place in searched(game) if place in world.setting.openable]
        if closed:
            place = closed[0]
            actions = [f"go to {place}", f"open {place}", f"close {place}", f"open {place}"]
            assert step_labels(game, actions, [True] * 4) == [1, 1, -1, -1]
            return
    raise AssertionError("no game has such a receptacle")


def test_exploring_is_bad_once_the_object_has_been_seen():
    checked = 0
    for game in games(SIMPLE, 40):
        world = World(game.scene_pddl)
        thing = world.setting.objects_of(game.goal.object.lower())[0]
        home = world.places_of(thing)[0]
        away = searched(game)
        opening = [f"open {home}"] if home in world.setting.openable else []
        if away:
            actions = [f"go to {home}", *opening, f"go to {away[0]}"]
            assert step_labels(game, actions, [True] * len(actions))[-1] == -1
            checked += 1
    assert checked >= 5


def test_undoing_progress_is_bad():
    for game in games(SIMPLE, 10):
        commands = plan(World(game.scene_pddl), game.goal)
        taking = next(i for i, command in enumerate(commands) if command.startswith("take"))
        thing, _, home = commands[taking].removeprefix("take ").partition(" from ")
        world = World(game.scene_pddl).after(commands[: taking + 1])
        back = f"move {thing} to {home}"
        if back in world.admissible():
            actions = [*commands[: taking + 1], back]
            assert step_labels(game, actions, [True] * len(actions))[-1] == -1
            return
    raise AssertionError("no game lets the object be put back")


def test_what_fits_nowhere_is_a_dead_end_in_which_everything_is_bad():
    game = next(
        game for game in games(SIMPLE, 40) if "egg 1" in World(game.scene_pddl).setting.objects
    )
    assert game.goal.object != "Egg"
    # As the published games have teddybears and paper towels: to take, and to put nowhere.
    scene = re.sub(r"\(canContain \w+ EggType\)\n", "", game.scene_pddl)
    world = World(scene)
    [place] = world.places_of("egg 1")
    before = [f"go to {place}", *([f"open {place}"] if place in world.setting.openable else [])]
    actions = [*before, f"take egg 1 from {place}", *plan(world, game.goal)]
    labels = step_labels(replace(game, scene_pddl=scene), actions, [True] * len(actions))
    assert labels[len(before) :] == [-1] * (len(actions) - len(before))


def test_two_objects_are_needed_until_two_are_seen_and_a_lamp_until_it_is():
    for kind in (TWO, LOOK):
        for game in games(kind, 5):
            world = World(game.scene_pddl)
            assert needs_search(world, game.goal)
            world.seen.add(world.setting.objects_of(game.goal.object.lower())[0])
            assert needs_search(world, game.goal)
            world.seen.update(world.setting.objects)
            assert not needs_search(world, game.goal)


def test_labels_of_random_play_are_of_both_signs_and_one_per_step():
    rng = random.Random(0)
    for kind in KINDS:
        game = games(kind, 1)[0]
        world = World(game.scene_pddl)
        actions = []
        for _ in range(30):
            actions.append(rng.choice(world.admissible()))
            world.play(actions[-1])
        labels = step_labels(game, actions, [True] * 30)
        assert len(labels) == 30
        assert set(labels) == {-1, 1}


def test_a_label_for_every_action_needs_a_flag_for_every_action():
    with pytest.raises(ValueError, match="validity flags"):
        step_labels(games(SIMPLE, 1)[0], ["look"], [])
