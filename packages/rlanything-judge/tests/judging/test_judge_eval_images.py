"""`judge-eval` of a run whose policy and judge look at screenshots."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from helpers.vision import vision_model
from helpers.vision_runs import EVALUATED, QUIET, asked_of_judges, recipe, train
from rlanything.runs.paths import IMAGES
from rlanything.runs.store.store import Store
from rlanything_judge.stored import JudgeEvalArgs, run_judge_eval

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose judge was evaluated, before and after its one iteration."""
    models = tmp_path_factory.mktemp("models")
    vision_model("qwen3_vl")[0].save(models / "policy")
    vision_model("smolvlm")[0].save(models / "judge")
    run = tmp_path_factory.mktemp("runs") / "examined"
    train(run, recipe(models / "policy", models / "judge"), "loop.iterations=1", *EVALUATED)
    return run


def test_a_judge_looks_at_the_episodes_that_it_is_always_evaluated_on(
    examined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Store(examined / "run.sqlite")) as store:
        kept = store.judge_eval_episodes()
    looked_at = {(step.image, step.next_image) for episode in kept for step in episode.steps}
    assert len(kept) == 2
    assert len(looked_at) == 4
    with asked_of_judges(monkeypatch) as shown:
        request = JudgeEvalArgs(str(examined), examined, episodes=2, allow_code=True)
        assert run_judge_eval(request, QUIET).steps == 4
    assert set(shown) == looked_at


def test_an_iterations_episodes_are_judged_by_their_images_and_none_is_added(
    examined: Path,
) -> None:
    kept = sorted((examined / IMAGES).iterdir())
    request = JudgeEvalArgs(str(examined), examined, iteration=1, episodes=2, allow_code=True)
    assert run_judge_eval(request, QUIET).steps == 4
    assert sorted((examined / IMAGES).iterdir()) == kept
