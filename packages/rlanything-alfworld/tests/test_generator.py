"""Generated games: seeded, playable, of all six types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from helpers.playable import games
from rlanything.domains.base import DomainError
from rlanything_alfworld import assets
from rlanything_alfworld.generator import generate
from rlanything_alfworld.goal import HEAT, KINDS
from rlanything_alfworld.pddl import player_names, read_facts, write_scene
from rlanything_alfworld.scene import ScenePlan, build_scene
from rlanything_alfworld.scene_goals import scene_goals


@pytest.mark.parametrize("kind", KINDS)
def test_each_task_type_can_be_generated(kind):
    game = games(kind, 1)[0]
    assert game.goal.kind == kind
    assert game.goal.object.lower() in game.instruction
    assert game.goal.receptacle.lower() in game.instruction
    assert f"Your task is to: {game.instruction}." in game.grammar
    assert game.pddl_problem.count("(") == game.pddl_problem.count(")")


def test_the_same_seed_gives_the_same_bytes_whatever_the_hash_seed():
    code = (
        "import json, hashlib\n"
        "from rlanything_alfworld.generator import generate\n"
        "games = [generate('FloorPlan3', seed).json() for seed in range(5)]\n"
        "print(hashlib.sha256(json.dumps(games).encode()).hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("0", "1", "42")
    }
    assert len(digests) == 1


def test_different_seeds_give_different_scenes():
    assert len({generate("FloorPlan3", seed).scene_pddl for seed in range(20)}) == 20


def test_a_plan_bounds_the_number_of_receptacles_and_objects():
    for room in ("FloorPlan1", "FloorPlan210", "FloorPlan301", "FloorPlan409"):
        for seed in range(20):
            scene = build_scene(ScenePlan(room, seed, (5, 6), (6, 8)))
            assert 5 <= len(scene.receptacles) <= 6
            assert 6 <= len(scene.objects) <= 8


def test_a_full_room_keeps_every_receptacle_of_the_layout():
    scene = build_scene(ScenePlan("FloorPlan1", 0, None, None))
    poses, _ = assets.layout("FloorPlan1")
    assert {place.split("|")[1] for place in poses} <= {
        r.id.split("|")[1] for r in scene.receptacles
    }
    assert len(scene.receptacles) >= len(poses)


@pytest.mark.parametrize("room", ["FloorPlan1", "FloorPlan215", "FloorPlan320", "FloorPlan420"])
def test_objects_lie_only_where_they_may_and_receptacles_never_share_a_standing_point(room):
    for seed in range(20):
        scene = build_scene(ScenePlan(room, seed, None, None))
        for thing in scene.objects:
            assert thing.type == "DeskLamp" or thing.type in assets.can_hold(thing.receptacle.type)
        locations = [receptacle.location for receptacle in scene.receptacles]
        assert len(set(locations)) == len(locations)
        assert scene.start not in locations
        identities = [thing.id for thing in scene.objects] + [r.id for r in scene.receptacles]
        assert len(set(identities)) == len(identities)


def test_thinned_kitchens_keep_what_cleaning_heating_and_cooling_need():
    for seed in range(30):
        scene = build_scene(ScenePlan("FloorPlan8", seed, (5, 5), (6, 6)))
        assert {"SinkBasin", "Fridge", "Microwave"} <= {r.type for r in scene.receptacles}


def test_goals_already_reached_are_not_offered():
    for seed in range(20):
        scene = build_scene(ScenePlan("FloorPlan4", seed))
        for goal in scene_goals(write_scene(scene), "pick_and_place_simple"):
            assert not any(
                thing.type == goal.object and thing.receptacle.type == goal.receptacle
                for thing in scene.objects
            )


def test_the_problem_text_names_every_object_and_receptacle_of_the_scene():
    game = generate("FloorPlan2", 7)
    scene = build_scene(ScenePlan("FloorPlan2", 7))
    predicates = Counter(fact[0] for fact in read_facts(game.scene_pddl))
    assert predicates["inreceptacle"] == predicates["objecttype"] == len(scene.objects)
    assert predicates["receptacletype"] == len(scene.receptacles)


def test_players_number_entities_against_their_sorted_order():
    names = player_names(["mug_bar_2", "mug_bar_1", "sink_bar_1_bar_sinkbasin"])
    assert names == {
        "mug_bar_1": "mug 2",
        "mug_bar_2": "mug 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
    }


def test_a_written_game_holds_what_the_stock_loader_reads(tmp_path):
    game = games(HEAT, 1)[0]
    path = game.write(tmp_path / "trial", ["look"])
    content = json.loads(path.read_text())
    assert content["pddl_problem"] == game.pddl_problem
    assert content["solvable"] is True
    assert content["walkthrough"] == ["look"]
    assert json.loads((tmp_path / "trial" / "traj_data.json").read_text())["task_type"] == HEAT


def test_an_unknown_room_is_named_in_the_error():
    with pytest.raises(DomainError, match="FloorPlan99"):
        generate("FloorPlan99", 0)


def test_without_alfworld_the_error_names_the_remedy(monkeypatch):
    monkeypatch.setattr(assets.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DomainError, match=r'pip install "rlanything\[alfworld\]"'):
        assets.package_folder.__wrapped__()


def test_comments_and_negations_in_a_problem_are_no_facts():
    text = "(:init ; (opened x)\n(not (opened y)) (= (total-cost) 0) (opened Z_bar_1))"
    assert ("opened", "z_bar_1") in set(read_facts(text))
    assert [fact for fact in read_facts(text) if fact[0] == "opened"] == [("opened", "z_bar_1")]
