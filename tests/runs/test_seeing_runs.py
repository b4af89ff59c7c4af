"""Runs whose policy and judge look at screenshots: on one seat and on two, resumed, evaluated."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from helpers.seeing import seeing_model
from helpers.seeing_runs import QUIET, recipe, train, weights
from helpers.tiny import tiny_model
from rlanything.config.recipe import RecipeError
from rlanything.runs.eval_target import EvalRequest, run_eval
from rlanything.runs.inside import IMAGES
from rlanything.runs.judge_target import JudgeEvalRequest, run_judge_eval
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    seeing_model("qwen3_vl")[0].save(folder / "policy")
    seeing_model("smolvlm")[0].save(folder / "judge")
    return folder / "policy", folder / "judge"


@pytest.fixture(scope="module")
def run(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "one"
    for record in train(run, recipe(*models)):
        # Learner and sampler see the same, or their log-probs would differ by what images matter.
        assert record.metrics["policy/mismatch_kl"] < 1e-9
        # What a random judge says has no scores in it, so that it learns nothing: but it looks.
        assert record.metrics["judge/unparsable_rate"] == 1.0
    return run


def test_a_run_that_looks_learns_and_leaves_its_towers_alone(run: Path) -> None:
    assert len(list((run / IMAGES).glob("*.png"))) == 9
    one, two = (weights(run, iteration, "policy") for iteration in (1, 2))
    moved = {key for key in one if not one[key].equal(two[key])}
    assert moved
    assert any("visual" in key for key in one)
    assert not any("visual" in key for key in moved)


@pytest.mark.slow
def test_two_seats_see_what_one_sees(run: Path, models: tuple[Path, Path], tmp_path: Path) -> None:
    train(tmp_path / "two", recipe(*models), "cluster.seats=2", "loop.iterations=1")
    for name in ("policy", "judge"):
        one, two = weights(run, 1, name), weights(tmp_path / "two", 1, name)
        assert one.keys() == two.keys()
        assert max(float((one[key] - two[key]).abs().max()) for key in one) < 1e-5
    said = []
    for place in (run, tmp_path / "two"):
        with closing(Store(place / "run.sqlite")) as store:
            rows = "SELECT step, action, image, next_image FROM steps WHERE trajectory LIKE '1/%'"
            said.append(sorted(store.query(rows), key=repr))
    assert said[0] == said[1]


def test_a_run_goes_on_bit_for_bit(run: Path, models: tuple[Path, Path], tmp_path: Path) -> None:
    train(tmp_path / "run", recipe(*models), "loop.iterations=1")
    more = ["loop.iterations=2"]
    list(Trainer.resume(tmp_path / "run", overrides=more, allow_code=True, progress=QUIET))
    for name in ("policy", "judge"):
        one, two = weights(run, 2, name), weights(tmp_path / "run", 2, name)
        assert all(one[key].equal(two[key]) for key in one)


def test_an_evaluation_outside_of_a_run_shows_images_and_keeps_none(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    trainer = Trainer(recipe(*models), run_dir=tmp_path / "run", allow_code=True, progress=QUIET)
    evaluation = trainer.evaluate("in_domain", episodes=2)
    assert len(evaluation.trajectories) == 2
    assert not (tmp_path / "run").exists()


def test_commands_show_images_of_a_run_and_of_their_own_episodes(run: Path) -> None:
    kept = sorted((run / IMAGES).iterdir())
    request = EvalRequest(str(run), "in_domain", 2, None, None, None, 1, 0, allow_code=True)
    assert len(run_eval(request, QUIET).evaluation.trajectories) == 2
    judged = run_judge_eval(
        JudgeEvalRequest(str(run), run, iteration=1, episodes=2, allow_code=True), QUIET
    )
    assert judged.steps == 4
    assert sorted((run / IMAGES).iterdir()) == kept


@pytest.mark.parametrize("blind", ["policy", "judge"])
def test_a_model_that_sees_nothing_is_named_before_the_run_begins(
    models: tuple[Path, Path], tmp_path: Path, blind: str
) -> None:
    tiny_model().save(tmp_path / "text")
    changes = [f"{blind}.model={tmp_path / 'text'}"]
    with pytest.raises(RecipeError) as caught:
        train(tmp_path / "run", recipe(*models), *changes)
    said = str(caught.value)
    assert said.startswith(f"{blind}.model: ")
    assert "cannot be shown images" in said
    assert "it is a model of text alone" in said
    assert "observe=text" in said
    assert "\n" not in said
    assert not (tmp_path / "run").exists()


def test_several_seats_refuse_to_train_a_tower(models: tuple[Path, Path], tmp_path: Path) -> None:
    changes = ["cluster.seats=2", "judge.train_vision=true"]
    with pytest.raises(RecipeError, match=r"judge.train_vision: one seat alone"):
        train(tmp_path / "run", recipe(*models), *changes)


def test_one_seat_trains_a_tower(models: tuple[Path, Path], tmp_path: Path) -> None:
    changes = ["policy.train_vision=true", "loop.iterations=2"]
    records = train(tmp_path / "run", recipe(*models), *changes)
    assert all(record.metrics["policy/mismatch_kl"] < 1e-9 for record in records)
    one, two = (weights(tmp_path / "run", iteration, "policy") for iteration in (1, 2))
    assert any("visual" in key for key in one if not one[key].equal(two[key]))
