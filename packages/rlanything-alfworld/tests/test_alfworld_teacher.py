"""What the judge is taught to say of a step before it scores it."""

from __future__ import annotations

import random

import pytest

from rlanything.records import Completion, Step, Task
from rlanything_alfworld.expert import plan
from rlanything_alfworld.goal import KINDS
from rlanything_alfworld.step_labels import step_labels
from rlanything_alfworld.tasks import load_game, tasks
from rlanything_alfworld.teacher import AlfWorldTeacher, describe_step
from rlanything_alfworld.world import World


def step(action: str | None, valid: bool = True) -> Step:
    return Step("", Completion.unsampled(""), action, valid, "")


def wander(task: Task, rng: random.Random, steps: int = 12) -> list[Step]:
    """Sometimes what the expert would do, sometimes a walk to anywhere."""
    game = load_game(task.data)
    world = World(game.scene_pddl)
    played: list[Step] = []
    while len(played) < steps and (commands := plan(world, game.goal)):
        anywhere = f"go to {rng.choice(list(world.setting.receptacles))}"
        action = rng.choice([commands[0], anywhere])
        played.append(step(action, world.play(action)))
    return played


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_expert_does_after_a_search_is_never_called_wrong(kind):
    for task in tasks("train", 6, 0, kinds=[kind]):
        game = load_game(task.data)
        world = World(game.scene_pddl)
        tour = [f"{verb} {p}" for p in world.setting.receptacles for verb in ("go to", "open")]
        played = [step(action) for action in tour if world.play(action)]
        for command in plan(world, game.goal):
            played.append(step(command))
            assert ": the right" in describe_step(task, played)


def test_the_words_nearly_tell_the_oracles_label():
    rng, agree, total = random.Random(0), 0, 0
    for task in tasks("train", 60, 1):
        played = wander(task, rng)
        labels = step_labels(
            load_game(task.data), [s.action for s in played], [s.valid for s in played]
        )
        for i, label in enumerate(labels):
            deed = describe_step(task, played[: i + 1]).partition(": ")[2]
            said = 1 if deed.startswith(("the right", "a new")) else -1
            agree, total = agree + (said == label), total + 1
    assert total > 300
    assert agree / total > 0.9


def test_missing_and_refused_actions_are_named():
    (task,) = tasks("train", 1, 0)
    assert describe_step(task, [step(None)]).endswith(": no action.")
    assert describe_step(task, [step("fly to moon 1", False)]).endswith(": nothing happens.")


def test_a_judgement_ends_with_its_score():
    (task,) = tasks("train", 1, 0)
    assert AlfWorldTeacher().judgement(task, [step(None)], -1).endswith(": no action. \\boxed{-1}")


def test_a_valuation_names_what_is_next_and_ends_with_its_grade():
    (task,) = tasks("train", 1, 0)
    game, played = load_game(task.data), list[Step]()
    world = World(game.scene_pddl)
    teacher = AlfWorldTeacher()
    assert teacher.valuation(task, played, 3).endswith(". \\boxed{3}")
    while commands := plan(world, game.goal):
        played.append(step(commands[0], world.play(commands[0])))
    assert teacher.valuation(task, played, 10) == "done. \\boxed{10}"
