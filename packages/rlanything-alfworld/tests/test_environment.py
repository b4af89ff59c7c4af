"""Episodes of AlfWorld: what the policy sees, and what becomes of what it answers."""

from __future__ import annotations

import os
import random
import signal

import pytest

from helpers.playable import games
from rlanything.domains.base import EpisodeError, Observation, StepResult
from rlanything.domains.text import TextRollouts
from rlanything.records import Task
from rlanything.rollout.workers import EnvironmentPool
from rlanything_alfworld.commands import ACTION_MARKER, find_action
from rlanything_alfworld.environment import AlfWorldEnvironment
from rlanything_alfworld.expert import plan
from rlanything_alfworld.game import Game
from rlanything_alfworld.goal import KINDS, SIMPLE
from rlanything_alfworld.scene import SMALL_OBJECTS, SMALL_RECEPTACLES, ScenePlan
from rlanything_alfworld.world import World


def task_of(game: Game, task_id: str = "t") -> Task:
    scene = ScenePlan(game.room, game.variant, SMALL_RECEPTACLES, SMALL_OBJECTS)
    data = {"scene": scene.to_json(), "goal": game.goal.to_json()}
    return Task(task_id, game.instruction, game.goal.kind, data)


class Games(TextRollouts):
    """As much of a domain as the pool needs."""

    def environment(self) -> AlfWorldEnvironment:
        return AlfWorldEnvironment()


@pytest.fixture(scope="module")
def game() -> Game:
    return games(SIMPLE, 1)[0]


@pytest.fixture(scope="module")
def environment() -> AlfWorldEnvironment:
    return AlfWorldEnvironment()


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ("> look", "look"),
        ("I am lost. > go to shelf 1", "go to shelf 1"),
        ("a > b\n>  open drawer 2  \nand then more", "open drawer 2"),
        ("> \n\n  open drawer 2", "open drawer 2"),
        ("look", None),
        ("look >", None),
        ("look > \n ", None),
        ("", None),
    ],
)
def test_the_action_is_the_first_line_after_the_last_marker(response, action):
    assert find_action(response) == action


def test_the_first_observation_is_the_room_alone(environment, game):
    shown = environment.reset(task_of(game))
    assert shown.text.startswith("You are in the middle of a room.")
    assert shown.text == shown.text.strip()
    assert "task" not in shown.text
    assert "Welcome" not in shown.text


def test_choices_are_sorted_and_offer_no_help(environment, game):
    shown = environment.reset(task_of(game))
    assert list(shown.choices) == sorted(shown.choices)
    assert "help" not in shown.choices
    assert {"look", "inventory"} <= set(shown.choices)


def test_idle_actions_can_be_left_out(game):
    environment = AlfWorldEnvironment(idle_actions=False)
    shown = environment.reset(task_of(game))
    for _ in range(3):
        choices = shown.choices or ()
        verbs = {choice.split()[0] for choice in choices}
        assert verbs.isdisjoint({"look", "inventory", "examine", "help"})
        shown = environment.step(f"> {random.Random(0).choice(choices)}").observation
    assert not environment.step("> look").valid


@pytest.mark.parametrize("kind", KINDS)
def test_the_experts_plan_wins(environment, kind):
    (game,) = games(kind, 1)
    environment.reset(task_of(game))
    results = [
        environment.step(f"This leads on. {ACTION_MARKER} {command}")
        for command in plan(World(game.scene_pddl), game.goal)
    ]
    assert all(result.valid for result in results)
    assert [result.outcome for result in results] == [None] * (len(results) - 1) + [1]


def test_a_response_without_an_action_is_told_so_and_changes_nothing(environment, game):
    shown = environment.reset(task_of(game))
    result = environment.step("I wonder what to do")
    assert (result.action, result.valid, result.outcome) == (None, False, None)
    assert result.observation.choices == shown.choices
    assert "No action was found" in result.observation.text
    assert f"`{ACTION_MARKER} `" in result.observation.text


def test_an_impossible_action_does_nothing(environment, game):
    shown = environment.reset(task_of(game))
    result = environment.step("> go to the moon")
    assert (result.action, result.valid, result.outcome) == ("go to the moon", False, None)
    assert result.observation == Observation("Nothing happens.", shown.choices)


@pytest.mark.parametrize("response", ["I wonder what to do", "\\boxed{99}", "> fly"])
def test_the_first_command_is_played_for_an_invalid_response_where_a_recipe_says_so(game, response):
    environment = AlfWorldEnvironment(listing="numbered", invalid="first")
    shown = environment.reset(task_of(game))
    assert shown.choices
    result = environment.step(response)
    assert (result.action, result.valid) == (shown.choices[0], True)


def test_the_same_responses_give_the_same_episode(environment, game):
    rng = random.Random(3)
    environment.reset(task_of(game))
    responses, results = [], []
    for _ in range(15):
        choices = (
            results[-1].observation.choices if results else environment.reset(task_of(game)).choices
        )
        responses.append(f"> {rng.choice(choices)}")
        results.append(environment.step(responses[-1]))
    again = AlfWorldEnvironment()
    again.reset(task_of(game))
    assert [again.step(response) for response in responses] == results


def test_a_task_that_cannot_be_played_names_itself_and_spares_the_environment(environment, game):
    damaged = Task("damaged", "", data={"scene": {}})
    with pytest.raises(EpisodeError, match="task damaged: the game cannot be loaded"):
        environment.reset(damaged)
    assert environment.reset(task_of(game)).choices


def play_at_random(pool: EnvironmentPool, tasks: list[Task], kill_at: int | None) -> list[object]:
    seen: list[object] = list(pool.reset(tasks))
    choices = {i: o.choices for i, o in enumerate(seen) if isinstance(o, Observation)}
    rng = random.Random(0)
    for turn in range(8):
        if turn == kill_at:
            os.kill(pool.process_ids[0], signal.SIGKILL)
        said = {index: f"> {rng.choice(options or ())}" for index, options in choices.items()}
        for index, result in pool.step(said).items():
            seen.append((index, result))
            assert isinstance(result, StepResult)
            choices[index] = result.observation.choices
            if result.outcome is not None:
                del choices[index]
    return seen


def test_killing_a_worker_in_the_middle_of_play_changes_no_result():
    tasks = [task_of(g, f"{k}{n}") for k in KINDS for n, g in enumerate(games(k, 1) * 2)]
    name = f"{__name__}:Games"
    with EnvironmentPool(name, {}, workers=0, timeout_seconds=60) as pool:
        undisturbed = play_at_random(pool, tasks, kill_at=None)
    with EnvironmentPool(name, {}, workers=2, timeout_seconds=60) as pool:
        assert play_at_random(pool, tasks, kill_at=4) == undisturbed
        assert pool.restarts == 1
