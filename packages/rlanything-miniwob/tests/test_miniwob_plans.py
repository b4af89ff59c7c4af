"""Plans of the recipe of web tasks."""

from __future__ import annotations

from rlanything.config.recipe import load_recipe
from rlanything_planning.plan import make_plan


def test_nano_models_fit_one_gpu() -> None:
    assert make_plan(load_recipe("miniwob-nano"), "h200", 1, ["environment_seconds=0"]).fits
