"""Splits never overlap, and a task's small JSON rebuilds its game anywhere."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest

from rlanything.domains.base import DomainError
from rlanything.records import Task
from rlanything_alfworld.expert import plan
from rlanything_alfworld.goal import CLEAN, COOL, HEAT, KINDS, LOOK, SIMPLE, TWO
from rlanything_alfworld.scene import room_family
from rlanything_alfworld.tasks import SPLITS, load_game, tasks
from rlanything_alfworld.world import World


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[Task]]:
    return {split: [*tasks(split, 300, 0), *tasks(split, 300, 1)] for split in SPLITS}


def goals_of(found: list[Task]) -> set[tuple[str, ...]]:
    return {tuple(task.data["goal"].values()) for task in found}


def rooms_of(found: list[Task]) -> set[str]:
    return {task.data["scene"]["room"] for task in found}


def test_no_split_shares_a_room_or_a_goal_with_train(drawn):
    for split in ("tune", "in_domain", "ood"):
        assert not rooms_of(drawn[split]) & rooms_of(drawn["train"])
        assert not goals_of(drawn[split]) & goals_of(drawn["train"])
    assert not goals_of(drawn["tune"]) & goals_of(drawn["in_domain"])
    assert not rooms_of(drawn["tune"]) & rooms_of(drawn["in_domain"])


def test_out_of_distribution_rooms_are_of_a_family_never_trained_on(drawn):
    families = {split: {room_family(room) for room in rooms_of(drawn[split])} for split in SPLITS}
    assert families["ood"] == {"Bathroom"}
    for split in ("train", "tune", "in_domain"):
        assert families[split] == {"Kitchen", "LivingRoom", "Bedroom"}


def test_task_types_come_in_equal_shares(drawn):
    for split in ("train", "tune", "in_domain"):
        counts = Counter(task.kind for task in drawn[split])
        assert set(counts) == set(KINDS)
        assert max(counts.values()) - min(counts.values()) <= 2
    assert {task.kind for task in drawn["ood"]} == {SIMPLE, TWO, CLEAN}


def test_train_offers_many_goals(drawn):
    assert len(goals_of(drawn["train"])) > 200


def test_the_same_seed_draws_the_same_tasks_and_another_seed_others():
    assert tasks("train", 20, 3) == tasks("train", 20, 3)
    assert tasks("train", 5, 3) == tasks("train", 20, 3)[:5]
    ids = {task.id for task in tasks("train", 20, 3)}
    assert not ids & {task.id for task in tasks("train", 20, 4)}
    assert len(ids) == 20


def test_a_task_survives_a_trip_through_json(drawn):
    for task in drawn["train"][:30]:
        data = json.loads(json.dumps(dict(task.data)))
        game = load_game(data)
        assert game == load_game(task.data)
        assert game.instruction == task.instruction
        assert game.goal.kind == task.kind


def test_every_drawn_task_has_a_plan_and_is_not_yet_done(drawn):
    for split in SPLITS:
        for task in drawn[split][:100]:
            game = load_game(task.data)
            assert 2 <= len(plan(World(game.scene_pddl), game.goal)) <= 14


def test_the_instruction_says_nothing_about_where_things_are(drawn):
    for task in drawn["train"]:
        assert "floorplan" not in task.instruction.lower()
        assert not any(character.isdigit() for character in task.instruction)


def test_difficulty_and_task_types_can_be_chosen():
    small = tasks("train", 30, 0, receptacles=(3, 4), objects=(4, 5), kinds=(HEAT, COOL))
    assert {task.kind for task in small} == {HEAT, COOL}
    for task in small:
        world = World(load_game(task.data).scene_pddl)
        assert 3 <= len(world.setting.receptacles) <= 4
        assert 4 <= len(world.setting.objects) <= 5
    full = tasks("in_domain", 3, 0, receptacles=None, objects=None, kinds=(CLEAN,))
    assert all(len(World(load_game(t.data).scene_pddl).setting.receptacles) > 9 for t in full)


def test_impossible_requests_name_the_remedy():
    with pytest.raises(DomainError, match="in_domain"):
        tasks("validation", 1, 0)
    with pytest.raises(DomainError, match="allow other task types"):
        tasks("ood", 1, 0, kinds=(LOOK,))
    with pytest.raises(DomainError, match="unknown task type"):
        tasks("train", 1, 0, kinds=("dance",))
    with pytest.raises(DomainError, match="allow more receptacles"):
        tasks("train", 1, 0, receptacles=(1, 1), objects=(1, 1), kinds=(TWO,))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"scene": {"room": "FloorPlan1"}, "goal": {}},
        {"scene": {"room": "FloorPlan1", "seed": 0, "receptacles": [9, 2], "objects": None}},
    ],
)
def test_data_that_describes_no_game_is_refused(data):
    with pytest.raises(DomainError):
        load_game({"goal": {"kind": SIMPLE, "object": "Mug", "receptacle": "Shelf"}, **data})


def test_building_a_new_game_takes_milliseconds():
    found = tasks("train", 50, 99)
    started = time.process_time()
    for task in found:
        data = {
            **task.data,
            "scene": {**task.data["scene"], "seed": task.data["scene"]["seed"] + 1},
        }
        load_game(data)
    assert (time.process_time() - started) / len(found) < 0.02
