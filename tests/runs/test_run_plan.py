"""Plans of runs: decided before anything is loaded or written."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helpers.paths import TINY
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.runs.directory import create_run
from rlanything.runs.parts import Parts
from rlanything.runs.plan import plan_new, plan_resumed
from rlanything.runs.trainer import Trainer

BEGUN = datetime(2025, 5, 3, 12, tzinfo=UTC)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of a run that stopped before its first iteration."""
    directory = tmp_path / "run"
    create_run(directory, load_recipe(TINY, {"run_dir": directory}), BEGUN.isoformat())
    return directory


def test_a_plan_of_a_new_run_writes_nothing(tmp_path: Path) -> None:
    plan = plan_new(TINY, Parts(), (), tmp_path / "run", allow_code=False)
    assert (plan.directory, plan.resumed, plan.changes) == (tmp_path / "run", False, ())
    assert not plan.directory.exists()
    with pytest.raises(FrozenInstanceError):
        setattr(plan, "resumed", True)  # noqa: B010


def test_a_resumed_run_keeps_its_day_and_is_not_loaded_before_it_is_needed(run: Path) -> None:
    plan = plan_resumed(run, Parts(), ["environment.workers=0"], allow_code=False)
    assert (plan.begun, plan.resumed) == (BEGUN, True)
    assert plan.changes == ("environment.workers=0",)
    assert plan.written.environment.workers == 0
    assert Trainer(plan)._session.loaded is None


def test_a_plan_of_a_moved_run_keeps_the_path_that_is_written_in_it(
    run: Path, tmp_path: Path
) -> None:
    moved = run.rename(tmp_path / "moved")
    plan = plan_resumed(moved, Parts(), (), allow_code=False)
    assert (plan.directory, plan.recipe.run_dir) == (moved, moved)
    assert plan.written.run_dir == run


@pytest.mark.parametrize(
    "more", [{"overrides": ["seed=1"]}, {"run_dir": "x"}, {"allow_code": True}, {"loss": abs}]
)
def test_a_plan_takes_nothing_that_it_has_already(run: Path, more: dict[str, Any]) -> None:
    plan = plan_resumed(run, Parts(), (), allow_code=False)
    with pytest.raises(RecipeError, match="a plan has its own parts, overrides and directory"):
        Trainer(plan, **more)
