"""Names on the command line: which are runs, recipes, models or players."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.paths import TINY
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.runs.target import (
    ModelTarget,
    PlayerTarget,
    RecipeTarget,
    RunTarget,
    Target,
    find_target,
    with_weights,
)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("random", PlayerTarget("random")),
        ("guess", RecipeTarget("guess")),
        ("mine.yaml", RecipeTarget("mine.yaml")),
        ("runs/first", RunTarget("runs/first")),
        ("nano", ModelTarget("nano")),
        ("org/model", ModelTarget("org/model")),
        ("runs/first/checkpoints", ModelTarget("runs/first/checkpoints")),
    ],
)
def test_a_name_stands_for_one_kind_of_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, target: Target
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "recipe.yaml").touch()
    (tmp_path / "mine.yaml").touch()
    assert find_target(name) == target


def test_a_folder_wins_over_the_shipped_recipe_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "guess").mkdir()
    assert find_target("guess") == ModelTarget("guess")


def test_only_roles_that_train_have_the_weights_of_a_checkpoint(tmp_path: Path) -> None:
    recipe = load_recipe(TINY)
    trained = with_weights(recipe, tmp_path)
    assert trained.roles["policy"].model == str(tmp_path / "policy")
    assert trained.roles["judge"].model == str(tmp_path / "judge")
    frozen = with_weights(load_recipe(recipe, ["judge.train=false"]), tmp_path)
    assert frozen.roles["judge"].model == recipe.roles["judge"].model


def test_a_directory_without_a_store_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").touch()
    with pytest.raises(RecipeError, match=r"is not a run directory: it has no run\.sqlite"):
        RunTarget(str(tmp_path)).recipe((), allow_code=False)
