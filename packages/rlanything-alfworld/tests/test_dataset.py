"""Downloaded games: found, filtered, played; damage is named in one line."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import warnings
from pathlib import Path

import pytest

from helpers.playable import games
from helpers.playing import play
from rlanything.domains.base import DomainError, InvalidTask, MissingData
from rlanything.records import Task
from rlanything.terminal import DamagedData
from rlanything_alfworld.dataset import FOLDERS, dataset_tasks, read_game
from rlanything_alfworld.domain import PublishedAlfWorld
from rlanything_alfworld.expert import plan
from rlanything_alfworld.goal import KINDS, SIMPLE
from rlanything_alfworld.scene_goals import rewrite, valid_goals
from rlanything_alfworld.tasks import candidate_goals, load_game, with_goal
from rlanything_alfworld.world import World

MUG_ON_SHELF = "(objectType ?o MugType) (receptacleType ?r ShelfType)"
SOURCES = {"train": "train", "in_domain": "valid_seen", "ood": "valid_unseen"}


@pytest.fixture(scope="module")
def downloaded(tmp_path_factory) -> Path:
    """Games in the layout that `alfworld-download` leaves behind."""
    root = tmp_path_factory.mktemp("data") / "json_2.1.1"
    for folder, offset in (("train", 0), ("valid_seen", 4), ("valid_unseen", 6)):
        for kind in KINDS:
            for number, game in enumerate(games(kind, 8)[offset:][: 4 if folder == "train" else 2]):
                goal = game.goal
                task = f"{kind}-{goal.object}-None-{goal.receptacle}-{offset}{number}"
                walkthrough = plan(World(game.scene_pddl), goal)
                game.write(root / folder / task / f"trial_T2019_{number}", walkthrough)
    return root


def rewritten(path: Path, **changes) -> None:
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps({key: value for key, value in content.items() if value != "gone"}))


@pytest.fixture
def lone(downloaded, tmp_path) -> Path:
    """A data set of one game; the folder of that game."""
    source = next((downloaded / "valid_seen").glob(f"{SIMPLE}-*/trial*"))
    trial = tmp_path / "json_2.1.1" / "valid_seen" / source.parent.name / source.name
    shutil.copytree(source, trial)
    return trial


def root_of(trial: Path) -> Path:
    return trial.parents[2]


def test_splits_come_from_the_folders_of_the_download(downloaded):
    for split, folder in SOURCES.items():
        tasks = dataset_tasks(downloaded, split, 1000, 0)
        assert {task.kind for task in tasks} == set(KINDS)
        for task in tasks:
            assert Path(task.data["path"]).is_relative_to(downloaded / folder)
            assert task.data["goal"] is None
    assert len(dataset_tasks(downloaded, "in_domain", 1000, 0)) == 12


def test_no_rewrite_of_a_training_game_is_a_task_of_another_split(downloaded, tmp_path):
    source = Path(dataset_tasks(downloaded, "train", 1, 0)[0].data["path"]).parent
    folder = tmp_path / "json_2.1.1"
    room = source.parent.name.rpartition("-")[2]

    def copied(name: str) -> Path:
        return Path(shutil.copytree(source, folder / name / source.name)) / "game.tw-pddl"

    game = copied(f"train/{source.parent.name}")
    root = Task("root", "", data={"path": str(game), "goal": None})
    goals = {
        f"{goal.kind}-{goal.object}-None-{goal.receptacle}-{room}": goal
        for goal in valid_goals(load_game(root.data))
    }
    free = [name for name, goal in goals.items() if goal in candidate_goals(root)]
    for name in goals:
        copied(f"train/{name}")
    trained = {Path(task.data["path"]).parts[-3] for task in dataset_tasks(folder, "train", 99, 0)}
    assert trained - {source.parent.name} == set(free) != set(goals)

    copied(f"valid_seen/{free[0]}")
    assert goals[free[0]] not in candidate_goals(root)
    with pytest.raises(InvalidTask, match="held out"):
        with_goal(root, "candidate", goals[free[0]])


def test_published_games_are_found_where_a_variable_says(downloaded, monkeypatch):
    for folder in (downloaded, downloaded.parent):
        monkeypatch.setenv("RLANYTHING_ALFWORLD_DATA", str(folder))
        assert len(PublishedAlfWorld().tasks("in_domain", 1000, 0)) == 12
    monkeypatch.delenv("RLANYTHING_ALFWORLD_DATA")
    with pytest.raises(MissingData, match="set RLANYTHING_ALFWORLD_DATA to the folder"):
        PublishedAlfWorld().tasks("in_domain", 1, 0)


@pytest.mark.parametrize("split", FOLDERS)
def test_published_games_are_won_and_random_play_is_labelled(split):
    if "RLANYTHING_ALFWORLD_DATA" not in os.environ:
        pytest.skip("set RLANYTHING_ALFWORLD_DATA to the folder that alfworld-download makes")
    domain = PublishedAlfWorld()
    for task in domain.tasks(split, 3, 0):
        game = load_game(task.data)
        expert = play(domain, task, [f"> {command}" for command in plan(game.world(), game.goal)])
        assert all(step.valid for step in expert)
        assert domain.oracle(task, expert) == [1] * len(expert)
        environment, rng = domain.environment(), random.Random(task.id)
        seen, responses = environment.reset(task), []
        for _ in range(30):
            responses.append(f"> {rng.choice(seen.choices or ())}")
            seen = environment.step(responses[-1]).observation
        labels = domain.oracle(task, play(domain, task, responses))
        assert len(labels) == 30
        assert -1 in labels


def test_tune_is_the_part_of_training_that_train_leaves_out(downloaded):
    def paths(split: str) -> set[str]:
        return {task.data["path"] for task in dataset_tasks(downloaded, split, 1000, 0)}

    assert not paths("train") & paths("tune")
    assert len(paths("train") | paths("tune")) == 24


def test_the_same_seed_draws_the_same_games(downloaded):
    def ids(seed: int) -> list[str]:
        return [task.id for task in dataset_tasks(downloaded, "train", 10, seed)]

    assert ids(1) == ids(1)
    assert ids(1) != ids(2)


def test_a_downloaded_game_reads_as_the_game_that_was_written(downloaded):
    written = {game.pddl_problem: game for kind in KINDS for game in games(kind, 8)}
    for task in dataset_tasks(downloaded, "ood", 1000, 0):
        game, original = load_game(task.data), written[load_game(task.data).pddl_problem]
        assert game.goal == original.goal
        assert game.instruction == original.instruction == task.instruction
        assert game.grammar == original.grammar


def test_a_downloaded_goal_can_be_rewritten_and_played(engine, downloaded):
    for root in dataset_tasks(downloaded, "in_domain", 1000, 0):
        game = load_game(root.data)
        for goal in valid_goals(game)[:1]:
            candidate = with_goal(root, "candidate", goal)
            new = load_game(candidate.data)
            assert new == rewrite(game, goal)
            engine.load(new.json())
            view = engine.reset()
            assert candidate.instruction in view.text
            for command in plan(World(new.scene_pddl), new.goal):
                view = engine.step(command)
            assert view.won


def test_human_sentences_are_read_and_replaced_too(lone):
    grammar = json.loads((lone / "game.tw-pddl").read_text())["grammar"]
    said = grammar.replace(read_game(str(lone / "game.tw-pddl")).instruction, "Tidy up. Be quick")
    other = lone.parent / "trial_human"
    shutil.copytree(lone, other)
    rewritten(other / "game.tw-pddl", grammar=said)
    game = read_game(str(other / "game.tw-pddl"))
    assert game.instruction == "Tidy up. Be quick"
    new = rewrite(game, valid_goals(game)[0])
    assert "Tidy up" not in new.grammar
    assert f"Your task is to: {new.instruction}." in new.grammar


def test_what_the_stock_loader_passes_over_is_passed_over(lone):
    root = root_of(lone)
    for number, (file, changes) in enumerate(
        (
            ("game.tw-pddl", {"solvable": False}),
            ("game.tw-pddl", {"solvable": "gone"}),
            ("traj_data.json", {"task_type": "pick_and_place_with_movable_recep"}),
        )
    ):
        extra = lone.parent / f"trial_{number}"
        shutil.copytree(lone, extra)
        rewritten(extra / file, **changes)
    shutil.copytree(lone, root / "valid_seen" / "pick_and_place_with_movable_recep-A" / "trial_1")
    shutil.copytree(lone, root / "valid_seen" / "pick_and_place_simple-AppleSliced-B" / "trial_1")
    shutil.copytree(lone, lone.parent / "trial_unplayable")
    (lone.parent / "trial_unplayable" / "game.tw-pddl").unlink()
    tasks = dataset_tasks(root, "in_domain", 100, 0)
    assert [task.data["path"] for task in tasks] == [str(lone / "game.tw-pddl")]


def complaint(trial: Path) -> str:
    with pytest.raises(DomainError) as caught, warnings.catch_warnings(action="ignore"):
        dataset_tasks(root_of(trial), "in_domain", 10, 0)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_folders_and_empty_splits_name_the_remedy(lone, tmp_path):
    with pytest.raises(DomainError, match=r"valid_unseen.*alfworld-download"):
        dataset_tasks(root_of(lone), "ood", 1, 0)
    with pytest.raises(DomainError, match="unknown split"):
        dataset_tasks(root_of(lone), "everything", 1, 0)
    shutil.rmtree(lone)
    assert "no playable game" in complaint(lone)
    assert "alfworld-download" in complaint(lone)


def test_a_truncated_game_is_named(lone):
    file = lone / "game.tw-pddl"
    file.write_text(file.read_text()[:2000])
    assert str(file) in complaint(lone)
    assert "alfworld-download again" in complaint(lone)


def test_a_damaged_game_is_left_out_and_the_others_are_read(lone):
    whole = lone.parent / "trial_whole"
    shutil.copytree(lone, whole)
    (lone / "game.tw-pddl").write_text("{")
    with pytest.warns(DamagedData, match=r"game\.tw-pddl is not readable .*; it is left out"):
        [task] = dataset_tasks(root_of(lone), "in_domain", 10, 0)
    assert task.data["path"] == str(whole / "game.tw-pddl")


def test_a_game_without_a_plan_is_named(lone):
    file = lone / "game.tw-pddl"
    problem = json.loads(file.read_text())["pddl_problem"]
    rewritten(file, pddl_problem=re.sub(r"\(inReceptacle [^)]*\)", "", problem))
    assert "nothing leads to: " in complaint(lone)


def test_a_truncated_trajectory_is_named(lone):
    (lone / "traj_data.json").write_text("{")
    assert "traj_data.json" in complaint(lone)


@pytest.mark.parametrize("key", ["pddl_domain", "grammar", "pddl_problem"])
def test_a_missing_key_is_named(lone, key):
    rewritten(lone / "game.tw-pddl", **{key: "gone"})
    assert f"lacks {key}" in complaint(lone)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("grammar", "grammar"),
        ("pddl_problem", "(define"),
        ("pddl_problem", "(:goal (and))"),
        (
            "pddl_problem",
            f"(:init (x y)) (:goal {MUG_ON_SHELF})",
        ),
    ],
)
def test_a_damaged_text_is_named(lone, key, value):
    rewritten(lone / "game.tw-pddl", **{key: value})
    assert "game.tw-pddl" in complaint(lone)


def test_a_task_whose_file_is_gone_says_so(lone):
    task = Task("x", "", data={"path": str(lone / "nothing.tw-pddl"), "goal": None})
    with pytest.raises(DomainError, match=r"nothing\.tw-pddl"):
        load_game(task.data)


def test_the_stock_loader_plays_what_is_written(lone, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "cache"))
    stock = pytest.importorskip("alfworld.agents.environment.alfred_tw_env")
    config = {
        "env": {
            "goal_desc_human_anns_prob": 0,
            "task_types": [1, 2, 3, 4, 5, 6],
            "domain_randomization": False,
            "expert_type": "handcoded",
        },
        "dataset": {"eval_id_data_path": str(root_of(lone) / "valid_seen"), "num_eval_games": 0},
        "general": {"training_method": "dqn"},
        "rl": {"training": {"max_nb_steps_per_episode": 50}},
    }
    loader = stock.AlfredTWEnv(config, train_eval="eval_in_distribution")
    assert loader.game_files == [str(lone / "game.tw-pddl")]
    environment = loader.init_env(batch_size=1)
    try:
        observations, _ = environment.reset()
        game = read_game(str(lone / "game.tw-pddl"))
        assert game.instruction in observations[0]
        won = False
        for command in plan(World(game.scene_pddl), game.goal):
            _, _, _, infos = environment.step([command])
            won = infos["won"][0]
        assert won
    finally:
        environment.close()
