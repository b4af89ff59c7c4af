"""MiniGrid and BabyAI through the gymnasium domain, without a line of Python."""

# The environment of `make test-ecosystems` alone has them.
# pyright: reportMissingImports=false
from __future__ import annotations

from pathlib import Path

import pytest

from helpers.ecosystems import trained
from rlanything.domains.base import DomainError
from rlanything_gyms.gymnasium.domain import GymnasiumDomain

ACTIONS = ("left", "right", "forward", "pick up", "drop", "toggle", "done")
BALL = "minigrid:BabyAI-GoToRedBallNoDists-v0"


def test_a_mission_and_its_grid_are_read() -> None:
    domain = GymnasiumDomain(id=BALL, win={"reward": "> 0"}, actions=ACTIONS, render="pprint_grid")
    environment = domain.environment()
    first = environment.reset(domain.tasks("train", 1, 0)[0])
    mission, *grid = first.text.splitlines()
    assert mission == "mission: go to the red ball"
    assert len(grid) == 8
    assert "AR" in first.text
    result = environment.step("so > left")
    assert (result.valid, result.outcome) == (True, None)
    assert result.observation.text != first.text
    environment.close()


def test_its_pictures_are_not_shown_as_numbers() -> None:
    with pytest.raises(DomainError, match="numbers, too many to read"):
        GymnasiumDomain(id=BALL, win={"reward": "> 0"}, actions=ACTIONS)


def test_a_recipe_of_babyai_trains(tmp_path: Path) -> None:
    options = f"{{id: {BALL!r}, render: pprint_grid, win: {{reward: '> 0'}}, actions: {ACTIONS}}}"
    options = options.replace("(", "[").replace(")", "]")
    run = trained("gymnasium", tmp_path / "run", f"domain.options={options}")
    assert run.steps == 20
    assert run.failures == 0
