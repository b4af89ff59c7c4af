"""Games of AlfWorld before 0.4, which say `put X in/on Y` where later ones say `move X to Y`."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.playable import games
from helpers.playing import play
from rlanything.domains.base import DomainError
from rlanything_alfworld.dataset import dataset_tasks, read_game
from rlanything_alfworld.domain import AlfWorld
from rlanything_alfworld.expert import plan
from rlanything_alfworld.game import Game
from rlanything_alfworld.goal import KINDS, SIMPLE
from rlanything_alfworld.paper_prompts import GRAMMAR
from rlanything_alfworld.player_memory import PlayerMemory
from rlanything_alfworld.scene_goals import scene_goals, valid_goals
from rlanything_alfworld.tasks import load_game
from rlanything_alfworld.wording import CURRENT, Wording, read_wording

_CHANGES = (
    ("You arrive at {r.name}", "You arrive at {lend.name}"),
    ("You move the {o.name} to the", "You put the {o.name} in/on the"),
    ('template :: "move {o} to {r}"', 'template :: "put {o} in/on {r}"'),
)


def of_before(game: Game) -> Game:
    """The same game as AlfWorld 0.3 wrote it."""
    grammar = game.grammar.partition("action help")[0]
    for new, old in _CHANGES:
        assert new in grammar
        grammar = grammar.replace(new, old)
    rules = game.pddl_domain.partition("(:action help")[0] + ")"
    return replace(game, grammar=grammar, pddl_domain=rules)


@pytest.fixture(scope="module")
def old_games(tmp_path_factory) -> Path:
    """One game of each task type in the layout of a download."""
    root = tmp_path_factory.mktemp("data") / "json_2.1.1"
    for kind in KINDS:
        [game] = games(kind, 1)
        of_before(game).write(root / "valid_unseen" / f"{kind}-A-None-B-1" / "trial_1")
    return root


def test_the_expert_wins_every_old_game_and_its_steps_are_labelled_good(engine, old_games):
    domain = AlfWorld(data=str(old_games))
    tasks = domain.tasks("ood", 10, 0)
    assert {task.kind for task in tasks} == set(KINDS)
    for task in tasks:
        game = load_game(task.data)
        commands = plan(game.world(), game.goal)
        steps = play(domain, task, [f"> {command}" for command in commands])
        assert all(step.valid for step in steps)
        assert domain.expert(task, steps[:-1]) == steps[-1].response
        assert domain.oracle(task, steps) == [1] * len(steps)
        engine.load(game.json())
        engine.reset()
        assert [engine.step(command) for command in commands][-1].won


def test_the_state_in_symbols_agrees_with_the_engine_on_old_games(engine, old_games):
    rng = random.Random(0)
    for task in dataset_tasks(old_games, "ood", 10, 0):
        game = load_game(task.data)
        engine.load(game.json())
        view, world = engine.reset(), game.world()
        for _ in range(30):
            assert world.admissible() == list(view.commands)
            busy = [c for c in view.commands if c.startswith(("take", "put", "open"))]
            command = rng.choice(busy or list(view.commands))
            view = engine.step(command)
            assert world.play(command)


def test_a_rewritten_old_game_keeps_its_wording(old_games):
    for task in dataset_tasks(old_games, "ood", 10, 0):
        game = load_game(task.data)
        assert game.wording == game.asking(game.goal).wording == Wording("put", "in/on", False)


def test_a_memory_of_an_old_game_knows_where_one_stands_and_what_one_holds():
    memory = PlayerMemory.at_start("put a mug in shelf", "you see a shelf 1, and a drawer 2.")
    memory.read("You arrive at loc 7. On the shelf 1, you see a mug 1.")
    assert memory.at == "shelf 1"
    memory.read("You pick up the mug 1 from the shelf 1.")
    memory.read("You arrive at loc 12. The drawer 2 is closed.")
    assert (memory.at, memory.holds, memory.closed) == ("drawer 2", "mug 1", {"drawer 2"})
    memory.read("You open the drawer 2. The drawer 2 is open. In it, you see nothing.")
    memory.read("You put the mug 1 in/on the drawer 2.")
    assert memory.holds is None
    assert memory.contents == {"shelf 1": [], "drawer 2": ["mug 1"]}


def test_the_papers_prompt_names_the_games_own_form(old_games):
    domain = AlfWorld(style="paper", commands="none", data=str(old_games))
    text = domain.policy_prompt(domain.tasks("ood", 1, 0)[0], (), "a room")[0].content
    assert "put OBJECT in/on PLACE" in text
    assert "move OBJECT" not in text
    assert "move OBJECT to PLACE" in GRAMMAR


def test_the_package_s_own_grammar_has_the_current_wording():
    [game] = games(SIMPLE, 1)
    assert read_wording(game.grammar) == CURRENT == game.wording


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ('"move {o} to {r}"', '"move {o}"'),
        ('"move {o} to {r}"', '"take {o} from {r}"'),
        ('"open {r}"', '"pull {r}"'),
        ('"heat {o} with {r}"', '"heat {o} in {r}"'),
    ],
)
def test_a_game_with_unknown_commands_is_refused_in_one_line(tmp_path, said, instead):
    [game] = games(SIMPLE, 1)
    strange = replace(game, grammar=game.grammar.replace(said, instead))
    file = strange.write(tmp_path / "valid_unseen" / "task" / "trial_1")
    with pytest.raises(DomainError, match=r"alfworld-download of alfworld 0\.4") as caught:
        dataset_tasks(tmp_path, "ood", 1, 0)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_keys_of_a_trial_are_read_without_parsing_its_file(tmp_path):
    [game] = games(SIMPLE, 1)
    file = game.write(tmp_path)
    data = game.trajectory_data() | {"images": ['a \\"task_type\\": "nothing"'] * 10}
    (tmp_path / "traj_data.json").write_text(json.dumps(data, indent=2))
    assert read_game(str(file)) == game
    broken = json.dumps(data).removesuffix("}") + ', "images": ['
    (tmp_path / "traj_data.json").write_text(broken)
    read_game.cache_clear()
    assert read_game(str(file)) == game


def test_a_trial_that_names_its_type_twice_is_parsed(tmp_path):
    [game] = games(SIMPLE, 1)
    file = game.write(tmp_path)
    data = {"inner": {"task_type": "other"}} | game.trajectory_data()
    (tmp_path / "traj_data.json").write_text(json.dumps(data))
    assert read_game(str(file)) == game


def test_things_that_lie_nowhere_are_no_candidate_goals():
    [game] = games("look_at_obj_in_light", 1)
    world = game.world()
    lamps = world.setting.objects_of(game.goal.receptacle.lower())
    loose = next(name for name, _ in sorted(world.inside) if name not in lamps)
    kind = world.setting.objects[loose]
    lines = game.scene_pddl.splitlines(keepends=True)
    scene = "".join(x for x in lines if not x.lower().startswith(f"(inreceptacle {kind}_bar_"))
    asked = replace(game, scene_pddl=scene)
    assert kind in {goal.object.lower() for goal in scene_goals(scene, game.goal.kind)}
    goals = valid_goals(asked)
    assert kind not in {goal.object.lower() for goal in goals}
    for goal in goals:
        assert plan(asked.world(), goal)
