"""Runs whose policy and judge look at screenshots: on one seat and on two, resumed, evaluated."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from safetensors.torch import load_file

from helpers.tiny import tiny_model
from helpers.vision import vision_model
from helpers.vision_runs import EVALUATED, QUIET, asked_of_judges, recipe, train, weights
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.roles.judges import llm
from rlanything.runs.eval_target import EvalArgs, run_eval
from rlanything.runs.paths import IMAGES
from rlanything.runs.recovery import retain
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    vision_model("qwen3_vl")[0].save(folder / "policy")
    vision_model("smolvlm")[0].save(folder / "judge")
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


def test_an_evaluation_of_a_run_shows_images_and_keeps_none(run: Path) -> None:
    kept = sorted((run / IMAGES).iterdir())
    request = EvalArgs(str(run), "in_domain", 2, None, None, None, 1, 0, allow_code=True)
    assert len(run_eval(request, QUIET).evaluation.trajectories) == 2
    assert sorted((run / IMAGES).iterdir()) == kept


@pytest.fixture(scope="module")
def examined(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose judge was evaluated, before and after its one iteration."""
    run = tmp_path_factory.mktemp("runs") / "examined"
    train(run, recipe(*models), "loop.iterations=1", *EVALUATED)
    return run


def test_screenshots_are_let_go_with_their_texts(examined: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(examined, run)
    images = run / IMAGES
    kept = set(images.iterdir())
    evaluated, note = images / f"{'0' * 32}.png", images / "note"
    for stray in (evaluated, note):
        stray.write_bytes(b"")
    settings = load_recipe(run / "recipe.yaml", allow_code=True)
    forgets = ["store.keep_iterations=1"]
    forgetful = load_recipe(run / "recipe.yaml", forgets, allow_code=True)
    goes_on = ["loop.iterations=2", "loop.tasks=6", "loop.max_staleness=1"]
    goes_on += [*forgets, "environment.lockstep=false"]
    under_way = load_recipe(run / "recipe.yaml", goes_on, allow_code=True)
    with closing(Store(run / "run.sqlite")) as store:
        for allowed in (settings, under_way):  # episodes under way may show any of them
            retain(run, store, allowed, 1)
            assert set(images.iterdir()) == {*kept, evaluated, note}
        retain(run, store, forgetful, 1)
        assert set(images.iterdir()) == {*kept, note}
        retain(run, store, forgetful, 2)
        steps = [step for episode in store.judge_eval_episodes() for step in episode.steps]
    shown = {name for step in steps for name in (step.image, step.next_image) if name}
    assert {path.name for path in images.iterdir()} == {*shown, "note"}
    assert 0 < len(shown) < len(kept)


def test_a_baseline_comes_with_what_its_judge_looked_at(
    examined: Path, models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [*EVALUATED, "loop.iterations=1", f"evaluation.baseline={examined}"]
    run = tmp_path / "run"
    begun = Trainer(
        recipe(*models), overrides=[f"run_dir={run}", *changes], allow_code=True, progress=QUIET
    )
    with asked_of_judges(monkeypatch) as shown:
        list(begun)
    with closing(Store(run / "run.sqlite")) as store:
        steps = [step for episode in store.judge_eval_episodes() for step in episode.steps]
    names = {name for step in steps for name in (step.image, step.next_image)}
    assert None not in names
    assert {(step.image, step.next_image) for step in steps} <= set(shown)
    assert all((run / IMAGES / str(name)).is_file() for name in names)


@pytest.mark.parametrize("packing", ["shared", "padded"])
def test_a_judge_learns_from_what_it_saw(
    models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packing: str
) -> None:
    # A random judge never writes a score: its answers are taken for some.
    monkeypatch.setattr(llm, "score_of", lambda answer, *_: 1 if len(answer.text) % 2 else -1)
    run, changes = tmp_path / "run", ("loop.iterations=1", f"judge.packing={packing}")
    [record] = train(run, recipe(*models), *changes)
    metrics = record.metrics
    assert metrics["judge/unparsable_rate"] == 0.0
    assert metrics["judge/mismatch_kl"] < 1e-9  # it learns from the images that it judged
    assert metrics["judge/grad_norm"] > 0
    before = load_file(models[1] / "model.safetensors")
    after = weights(run, 1, "judge")
    moved = {key for key in after if not after[key].equal(before[key])}
    assert moved
    assert not any("vision" in key or "connector" in key for key in moved)


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
    assert "it is a text-only model" in said
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
