"""Goals: sentence, PDDL and plan change together, and goals that are no task are refused."""

from __future__ import annotations

import re

import pytest

from helpers.playable import BEDROOM, KITCHEN, games
from rlanything.domains.base import InvalidTask
from rlanything_alfworld.expert import plan
from rlanything_alfworld.generator import generate
from rlanything_alfworld.goal import CLEAN, COOL, HEAT, KINDS, LOOK, SIMPLE, TWO
from rlanything_alfworld.scene_goals import (
    Goal,
    rewrite,
    scene_goals,
    scene_inventory,
    valid_goals,
)
from rlanything_alfworld.tasks import (
    candidate_goals,
    goal_split,
    load_game,
    tasks,
    with_goal,
)
from rlanything_alfworld.world import World


@pytest.mark.parametrize("kind", KINDS)
def test_a_rewrite_changes_sentence_pddl_and_plan_together(engine, kind):
    game = next(game for game in games(kind, 20) if valid_goals(game))
    for goal in valid_goals(game)[:4]:
        new = rewrite(game, goal)
        assert new.goal == goal
        assert new.scene_pddl == game.scene_pddl
        assert f"{goal.object}Type" in new.goal_pddl
        for name in (goal.object.lower(), goal.receptacle.lower()):
            assert name in new.instruction
        engine.load(new.json())
        progress = engine.reset()
        assert progress.text.endswith(f"Your task is to: {new.instruction}.")
        for command in plan(World(new.scene_pddl), goal):
            assert not progress.won
            progress = engine.step(command)
        assert progress.won


@pytest.mark.parametrize("kind", KINDS)
def test_every_listed_goal_can_be_rewritten_to_and_no_other_of_the_scene(kind):
    for game in games(kind, 3):
        listed = set(valid_goals(game))
        inventory = scene_inventory(game)
        places = inventory.objects if kind == LOOK else inventory.receptacles
        for thing in inventory.objects:
            for place in places:
                try:
                    goal = Goal.of(kind, thing, place)
                    rewrite(game, goal)
                except InvalidTask:
                    assert (thing, place) not in {
                        (goal.object.lower(), goal.receptacle.lower()) for goal in listed
                    }
                else:
                    assert goal in listed


def test_spelling_is_forgiven_and_unknown_words_are_named():
    assert Goal.of(SIMPLE, "alarm clock", "counter_top") == Goal(SIMPLE, "AlarmClock", "CounterTop")
    with pytest.raises(InvalidTask, match="'dragon'"):
        Goal.of(SIMPLE, "dragon", "shelf")
    with pytest.raises(InvalidTask, match="'heaven'"):
        Goal.of(SIMPLE, "mug", "heaven")
    with pytest.raises(InvalidTask, match="'dance'"):
        Goal.of("dance", "mug", "shelf")
    with pytest.raises(InvalidTask, match="lacks receptacle"):
        Goal.from_json({"kind": SIMPLE, "object": "mug"})


def test_a_goal_survives_a_trip_through_json():
    for kind in KINDS:
        goal = games(kind, 1)[0].goal
        assert Goal.from_json(goal.to_json()) == goal


def refused(game, kind: str, thing: str, place: str) -> str:
    with pytest.raises(InvalidTask) as caught:
        rewrite(game, Goal.of(kind, thing, place))
    return str(caught.value)


def test_goals_about_absent_things_are_refused():
    game = games(SIMPLE, 1)[0]
    assert "no pillow" in refused(game, SIMPLE, "pillow", "fridge")
    present = next(iter(scene_inventory(game).objects))
    assert "no toilet" in refused(game, SIMPLE, present, "toilet")


def test_goals_that_the_rules_forbid_are_refused():
    full = generate(KITCHEN, 3, HEAT, receptacles=None, objects=None)
    assert "cannot heat a spoon" in refused(full, HEAT, "spoon", "drawer")
    assert "cannot contain" in refused(full, HEAT, "egg", "coffeemachine")


def test_a_goal_reached_at_the_start_is_refused():
    for game in games(SIMPLE, 20):
        for thing, places in scene_inventory(game).objects.items():
            place = re.sub(r" \d+$", "", places[0])
            if Goal.of(SIMPLE, thing, place) != game.goal:
                assert "already reached" in refused(game, SIMPLE, thing, place)


def test_an_unchanged_goal_is_refused():
    game = games(COOL, 1)[0]
    assert "unchanged" in refused(game, COOL, game.goal.object, game.goal.receptacle)


def test_the_task_type_must_stay():
    game = games(COOL, 1)[0]
    assert "must stay" in refused(game, HEAT, game.goal.object, game.goal.receptacle)


def test_two_of_a_thing_that_exists_once_are_refused():
    for game in games(TWO, 10):
        lonely = [t for t, places in scene_inventory(game).objects.items() if len(places) == 1]
        for thing in lonely:
            kept = list(scene_inventory(game).receptacles)
            assert "has 1" in refused(game, TWO, thing, kept[0])


def test_cleaning_without_a_sink_is_refused():
    bedroom = generate(BEDROOM, 1, SIMPLE)
    assert scene_goals(bedroom.scene_pddl, CLEAN) == ()


def test_an_inventory_counts_what_is_where():
    game = games(LOOK, 1)[0]
    inventory = scene_inventory(game)
    world = World(game.scene_pddl)
    assert sum(map(len, inventory.objects.values())) == len(world.setting.objects)
    assert sum(inventory.receptacles.values()) == len(world.setting.receptacles)
    assert "desklamp" in inventory.objects
    for kind, places in inventory.objects.items():
        for place in places:
            assert any(world.setting.objects[t] == kind for t in world.contents(place))


def test_a_task_keeps_its_scene_when_its_goal_is_rewritten():
    for root in tasks("train", 12, 0):
        for goal in candidate_goals(root)[:2]:
            candidate = with_goal(root, "candidate", goal)
            assert candidate.id == "candidate"
            assert candidate.kind == root.kind
            assert candidate.data["scene"] == root.data["scene"]
            assert candidate.instruction != root.instruction
            assert load_game(candidate.data).goal == goal


def test_rewrites_of_training_tasks_never_bring_in_held_out_goals():
    refusals = 0
    for root in tasks("train", 24, 0):
        accepted = candidate_goals(root)
        for goal in valid_goals(load_game(root.data)):
            if goal in accepted:
                assert goal_split(goal) == "train"
            else:
                with pytest.raises(InvalidTask, match="held out"):
                    with_goal(root, "candidate", goal)
                refusals += 1
    assert refusals > 0
