"""Gymnasium's own environments as domains: what is read, played, scored and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gymnasium
from gymnasium import spaces
from helpers.ecosystems import trained
from rlanything.config.problems import TrustError
from rlanything.config.recipe import load_recipe
from rlanything.domains.base import DomainError, Environment, StepResult
from rlanything_gyms.gymnasium.actions import ActionReader, NoSuchAction
from rlanything_gyms.gymnasium.domain import GymnasiumDomain
from rlanything_gyms.gymnasium.rendering import described, marked

LAKE: dict[str, Any] = {
    "id": "FrozenLake-v1",
    "kwargs": {"is_slippery": False},
    "actions": ["left", "down", "right", "up"],
    "win": {"return": ">= 1"},
}
GOAL = ("down", "down", "right", "down", "right", "right")


class Odd(gymnasium.Env):
    """An environment that breaks its promises when it is told to."""

    observation_space = spaces.Text(9)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return "begun", {}

    def step(self, action: Any) -> Any:
        if action == 2:
            raise RuntimeError("no")
        return "on", float("nan") if action else 1.0, False, False, {}


class Picture(Odd):
    observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)


class Doors(Odd):
    def __init__(self, n: int) -> None:
        self.action_space = spaces.Discrete(n)


gymnasium.register(
    "Doors-v0", entry_point=lambda **kwargs: Doors(**kwargs), disable_env_checker=True
)
gymnasium.register("Odd-v0", entry_point=lambda **_: Odd(), disable_env_checker=True)
gymnasium.register("Picture-v0", entry_point=lambda **_: Picture(), disable_env_checker=True)


def begun(domain: GymnasiumDomain, split: str = "train") -> tuple[Environment, str]:
    environment = domain.environment()
    return environment, environment.reset(domain.tasks(split, 1, 0)[0]).text


def steps(environment: Environment, *actions: str) -> list[StepResult]:
    return [environment.step(f"so > {action}") for action in actions]


def test_a_lake_is_read_and_crossed() -> None:
    domain = GymnasiumDomain(**LAKE)
    [task] = domain.tasks("in_domain", 1, 0)
    assert task.instruction == "Play FrozenLake-v1.\nActions: left, down, right, up."
    environment = domain.environment()
    first = environment.reset(task)
    assert first.text == "[S]FFF\nFHFH\nFFFH\nHFFG"
    assert first.choices == ("left", "down", "right", "up")
    *_, last = steps(environment, *GOAL)
    assert (last.outcome, last.reward, last.valid) == (1, 1.0, True)
    environment.reset(task)
    [fallen] = steps(environment, "down", "right")[1:]
    assert (fallen.outcome, fallen.reward) == (-1, 0.0)


def test_an_unknown_action_is_no_error() -> None:
    environment, _ = begun(GymnasiumDomain(**LAKE))
    [result] = steps(environment, "jump")
    assert (result.valid, result.outcome) == (False, None)
    assert result.observation.text == ("There is no such action. Actions: left, down, right, up.")


def test_the_same_seed_gives_the_same_episode_and_another_another() -> None:
    domain = GymnasiumDomain(**{**LAKE, "kwargs": {}})
    runs = []
    for _ in range(2):
        for task in domain.tasks("train", 3, 0):
            environment = domain.environment()
            environment.reset(task)
            moved = ["right", "down"] * 3
            runs.append([r.observation.text for r in steps(environment, *moved) if not r.outcome])
    assert runs[:3] == runs[3:]
    assert runs[0] != runs[1] or runs[1] != runs[2]


def test_a_cut_off_episode_is_not_terminated() -> None:
    domain = GymnasiumDomain(
        id="MountainCar-v0", win={"terminated": True}, kwargs={"max_episode_steps": 3}
    )
    environment, text = begun(domain)
    assert text.startswith("[-0.")
    results = steps(environment, "0", "1", "2")
    assert [result.outcome for result in results] == [None, None, -1]
    assert results[-1].reward == -3.0


def test_out_of_domain_is_played_with_other_arguments() -> None:
    domain = GymnasiumDomain(**LAKE, ood={"map_name": "8x8"})
    assert len(begun(domain)[1].splitlines()) == 4
    assert len(begun(domain, "ood")[1].splitlines()) == 8
    environment = domain.environment()
    for split, rows in (("ood", 8), ("train", 4), ("ood", 8)):
        seen = environment.reset(domain.tasks(split, 1, 0)[0])
        assert len(seen.text.splitlines()) == rows


def test_an_environment_that_breaks_its_promises_loses_the_episode_alone() -> None:
    domain = GymnasiumDomain(id="Odd-v0", win={"return": ">= 1"}, horizon=2)
    environment, _ = begun(domain)
    assert steps(environment, "0", "0")[-1].outcome == 1
    with pytest.raises(Exception, match="finite numbers"):
        steps(begun(domain)[0], "1")
    with pytest.raises(RuntimeError, match="no"):
        steps(begun(domain)[0], "2")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": "FrozenPond-v1"}, "doesn't exist.*install what registers it"),
        ({"id": "no_such_package:Pond-v0"}, "needs the module no_such_package"),
        ({"kwargs": {"depth": 3}}, "unexpected keyword argument 'depth'.*fix domain.options"),
        ({"kwargs": {"map_name": "9x9"}}, "KeyError"),
        ({"actions": ["left", "right"]}, r"actions names 2, the environment has Discrete\(4\)"),
        ({"actions": {"left": 9}}, "actions.left is 9, which is not in"),
        ({"win": {"score": 1}}, "win names 'score'"),
        ({"render": "draw"}, "no such method"),
        ({"render": "_render_text"}, "no such method"),
        ({"render": "no_such_module:show"}, "there is no module no_such_module"),
        ({"horizon": 0}, r"horizon: .* greater than or equal to 1 \(got 0\)"),
        ({"ood": {"map_name": "9x9"}}, "KeyError"),
        ({"instruction": ""}, "instruction: string should have at least 1 character"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_line(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(DomainError, match=said) as error:
        GymnasiumDomain(**{**LAKE, **changes})
    assert "\n" not in str(error.value)


def test_pictures_need_words() -> None:
    with pytest.raises(DomainError, match="12288 numbers, too many to read: set"):
        GymnasiumDomain(id="Picture-v0", win={"return": 1})
    with pytest.raises(DomainError, match="render is ansi, which the environment does not offer"):
        GymnasiumDomain(id="Picture-v0", win={"return": 1}, render="ansi")
    domain = GymnasiumDomain(id="Picture-v0", win={"return": 1}, render=lambda *_: "a pond")
    assert begun(domain)[1] == "a pond"


def test_actions_are_read_in_the_types_of_their_space() -> None:
    box = ActionReader.of(spaces.Box(-1, 1, (2,)), None)
    assert box.value("[0.5, -1]").dtype == np.float32
    parts = spaces.Dict({"to": spaces.Discrete(3), "say": spaces.Text(5)})
    assert ActionReader.of(parts, None).value('{"to": 1, "say": "hello"}')["to"] == 1
    both = spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2)))
    assert ActionReader.of(both, None).value("[1, [0, 1]]")[0] == 1
    assert ActionReader.of(spaces.Text(5), None).value("hello") == "hello"
    assert ActionReader.of(spaces.Discrete(2, start=-1), None).choices == ("-1", "0")
    for reader, action in (
        (box, "[0.5]"),
        (box, "[2, 0]"),
        (box, "left"),
        (box, "[" * 10**5),
        (ActionReader.of(parts, None), '{"to": 1}'),
        (ActionReader.of(parts, None), "3"),
        (ActionReader.of(both, None), "[1]"),
        (ActionReader.of(spaces.Text(5), None), "too long"),
    ):
        with pytest.raises(NoSuchAction):
            reader.value(action)


def test_whole_numbers_are_asked_for_where_the_space_has_them() -> None:
    reader = ActionReader.of(spaces.MultiDiscrete([3, 3]), None)
    assert list(reader.value("[1, 2.0]")) == [1, 2]
    for action in ("[1.9, 2]", "[-0.5, 2]"):
        with pytest.raises(NoSuchAction, match="This is no action"):
            reader.value(action)
    pairs = ActionReader.of(spaces.Sequence(spaces.Discrete(3)), None)
    assert pairs.value("[0, 2]") == (0, 2)


def test_observations_are_described_in_words() -> None:
    assert described({"at": np.array([0.12345, 2]), "say": "hi"}) == "at: [0.1235, 2]\nsay: hi"
    assert described(np.array([1e-4, -0.5])) == "[0.0001, -0.5]"
    assert described((np.int64(3), 4)) == "3, 4"
    assert marked("a\x1b[41mS\x1b[0mb\x1b[1m") == "a[S]b"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"id": "stranger:Pond-v0"}, "stranger:Pond-v0"),
        ({"id": "Pond-v0", "render": "stranger:show"}, "stranger:show"),
    ],
)
def test_code_that_a_recipe_names_has_to_be_allowed(options: dict[str, str], named: str) -> None:
    data = {"name": "pond", "domain": {"name": "gymnasium", "options": options}}
    with pytest.raises(TrustError, match=named):
        load_recipe(data)
    assert load_recipe(data, allow_code=True).code == [named]


def test_the_recipe_trains_and_asks_no_adapter(tmp_path: Path) -> None:
    run = trained("gymnasium", tmp_path / "run")
    assert run.steps > 0
    assert run.metrics["tasks/asked"] == 0
    assert run.recipe_lines <= 12


def test_other_actions_out_of_distribution_are_refused() -> None:
    with pytest.raises(DomainError, match=r"ood: its actions are Discrete\(4\), .* Discrete\(2\)"):
        GymnasiumDomain(id="Doors-v0", win={"return": 1}, kwargs={"n": 2}, ood={"n": 4})
