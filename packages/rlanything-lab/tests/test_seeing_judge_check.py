"""A judge that looks at screenshots is checked on those of the episodes that were kept."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from helpers.vision import vision_model
from helpers.vision_runs import EVALUATED, QUIET, asked_of_judges, recipe, train
from rlanything.runs.store.store import Store
from rlanything_lab.judge_check.run_check import check_judge


def test_a_check_shows_the_screenshots_of_the_kept_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "policy", tmp_path / "judge"
    vision_model("qwen3_vl")[0].save(models[0])
    vision_model("smolvlm")[0].save(models[1])
    run = tmp_path / "run"
    train(run, recipe(*models), "loop.iterations=1", *EVALUATED)
    with closing(Store(run / "run.sqlite")) as store:
        kept = store.judge_eval_episodes()
    looked_at = {(step.image, step.next_image) for episode in kept for step in episode.steps}
    assert len(looked_at) == 4
    with asked_of_judges(monkeypatch) as shown:
        checked = check_judge(run, 2, QUIET, allow_code=True)
    assert (checked.episodes, checked.steps) == (2, 4)
    assert set(shown) == looked_at
