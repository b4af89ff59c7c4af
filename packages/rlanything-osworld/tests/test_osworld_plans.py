"""Plans of the recipe that the paper's desktop setting has."""

from __future__ import annotations

from rlanything.config.recipe import load_recipe
from rlanything_planning.plan import make_plan


def test_the_papers_recipe_for_desktops_is_planned_without_its_data_or_an_assumption() -> None:
    recipe = load_recipe("osworld-qwen3-vl-8b")
    assert recipe.adapter.critic_stages == 2
    plan = make_plan(recipe, "h200")
    lines = {line.name: line for part in plan.sections for line in part.quantities}
    assert lines["policy_image_tokens"].value == lines["judge_image_tokens"].value == 2040
    assert "1920 x 1080" in lines["policy_image_tokens"].how
    assert plan.fits
    assert plan.count == 8
    # packages/rlanything-planning/README.md has these.
    assert round((lines["h200 0"].value or 0.0) / 1e9) == 124
    assert round(sum(plan.seconds.values()), -2) == 3800
