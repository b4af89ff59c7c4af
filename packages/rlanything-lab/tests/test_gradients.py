"""Gradients compared: cosines known in advance, the terms of Eq. 1, a run played again."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.command import call, refused
from helpers.guess import GUESS
from rlanything.algorithm.feedback import AdvantageConfig, FeedbackSettings
from rlanything.algorithm.signals import task_signals
from rlanything.cluster.models import TrainedModel
from rlanything.domains.registry import load_domain
from rlanything.progress import Progress
from rlanything.runs.open import open_run
from rlanything.runs.target import RunTarget
from rlanything.terminal import Terminal
from rlanything_lab.gradients import measure as measuring
from rlanything_lab.gradients.agreement import (
    Floats,
    TaskGradients,
    agreement,
    bootstrap,
    products,
    total,
)
from rlanything_lab.gradients.measure import task_gradients
from rlanything_lab.gradients.play import PlayedIteration, measured_recipe, play
from rlanything_lab.gradients.terms import TERMS, has_terms, of_term, one_term

Captured = pytest.CaptureFixture[str]
WEIGHTS = 60
arrays = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def gradients(rows: Floats, first: int = 0) -> TaskGradients:
    return TaskGradients(np.arange(first, first + len(rows)), rows)


def pair(rows: tuple[Floats, Floats]) -> tuple[TaskGradients, TaskGradients]:
    return gradients(rows[0]), gradients(rows[1])


def noisy(
    rng: np.random.Generator, tasks: int, cosine: float, noise: float, shared: float = 0.0
) -> tuple[Floats, Floats]:
    """Gradients [tasks, weights] around two unit vectors with this cosine; `shared`: correlation of
    the noise of one task's two gradients."""
    x, y = np.zeros((2, WEIGHTS))
    x[0], y[0], y[1] = 1, cosine, np.sqrt(1 - cosine**2)
    one, other = rng.normal(0, noise, (2, tasks, WEIGHTS))
    return x + one, y + shared * one + np.sqrt(1 - shared**2) * other


def test_the_cosine_is_right_where_noise_biases_the_plain_one() -> None:
    # Noise of 0.65 as long as the mean: a plain cosine is lowered, or raised by what is shared.
    for shared, plain in ((0.0, 0.35), (0.9, 0.62)):
        found: list[tuple[float, float]] = []
        covered = 0
        for seed in range(50):
            x, y = noisy(np.random.default_rng(seed), 60, 0.5, 0.65, shared)
            of = products(gradients(x), gradients(y), bootstrap(60, seed)[:200])
            assert of is not None
            result = agreement(of)
            assert result.cosine is not None
            found.append((result.plain, result.cosine.estimate))
            covered += result.cosine.low <= 0.5 <= result.cosine.high
        assert np.mean(found, axis=0) == pytest.approx([plain, 0.5], abs=0.04)
        assert covered >= 0.9 * 50


def test_the_reliability_is_the_share_of_length_that_is_no_noise() -> None:
    several = [
        products(
            *pair(noisy(np.random.default_rng(seed), 50, 0.0, 1.0)),
            bootstrap(50, seed)[:2],
        )
        for seed in range(40)
    ]
    of = total([*several, None])
    assert of is not None
    # The mean of 50 tasks has noise of 60 weights x 1 / 50, next to a length of 1.
    assert agreement(of).reliability == pytest.approx([1 / 2.2] * 2, abs=0.03)
    assert total([None]) is None


def test_no_cosine_comes_from_noise_alone() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 40, 1000))
    of = products(gradients(x), gradients(y + x), bootstrap(40, 0))
    assert of is not None
    result = agreement(of)
    assert result.plain > 0.5
    assert result.cosine is result.ratio is None
    assert max(result.reliability) < 0.2


def test_several_iterations_together_narrow_the_interval() -> None:
    several = [
        products(
            *pair(noisy(np.random.default_rng(seed), 30, 0.8, 0.9, 0.5)), bootstrap(30, 0)[:200]
        )
        for seed in range(30)
    ]
    widths: list[float] = []
    for of in (several[0], total(several)):
        assert of is not None
        result = agreement(of)
        assert result.cosine is not None
        widths.append(result.cosine.high - result.cosine.low)
        assert result.cosine.low <= 0.8 <= result.cosine.high
    assert widths[1] < 0.5 * widths[0]


@given(rng=arrays)
@settings(max_examples=20, deadline=None)
def test_products_are_those_of_all_ways_to_halve_the_tasks(rng: np.random.Generator) -> None:
    x, y = rng.normal(1, 1, (2, 6, 4))
    of = products(gradients(x), gradients(y), bootstrap(6, 0))
    assert of is not None
    halves = [np.isin(np.arange(6), half) for half in itertools.combinations(range(6), 3)]
    across = [
        np.mean([one[half].mean(0) @ other[~half].mean(0) for half in halves])
        for one, other in ((x, y), (x, x), (y, y))
    ]
    assert of.unbiased == pytest.approx(across)


@given(rng=arrays, scale=st.floats(0.1, 10))
@settings(max_examples=10, deadline=None)
def test_neither_length_nor_axes_nor_order_matter(rng: np.random.Generator, scale: float) -> None:
    x, y = rng.normal(1, 1, (2, 8, 5))
    turned = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    order = rng.permutation(8)
    drawn = bootstrap(8, 0)
    of = products(gradients(x), gradients(y), drawn)
    other = products(
        gradients(x @ turned * scale), TaskGradients(order, (y @ turned)[order]), drawn
    )
    assert of is not None
    assert other is not None
    lengths = np.array([scale, scale**2, 1])
    for name in ("plain", "unbiased", "resampled"):
        assert getattr(other, name) == pytest.approx(getattr(of, name) * lengths)


def test_opposite_gradients_have_cosine_minus_one_and_two_tasks_are_needed() -> None:
    x = np.random.default_rng(0).normal(1, 0.1, (9, 5))
    of = products(gradients(x), gradients(-2 * x), bootstrap(9, 0))
    assert of is not None
    result = agreement(of)
    assert result.cosine is not None
    assert result.ratio == pytest.approx(0.5)
    assert (result.cosine.low, result.cosine.high) == pytest.approx((-1, -1))
    x[1:] = 0
    assert products(gradients(x), gradients(x), bootstrap(9, 0)) is None


def test_a_task_in_both_iterations_is_not_compared_with_itself() -> None:
    # The tasks share nothing but their own noise, in both iterations.
    x = np.random.default_rng(0).normal(size=(40, 300))
    of = products(gradients(x), gradients(x[20:], first=20), bootstrap(40, 0))
    apart = products(gradients(x[:20]), gradients(x[20:], first=20), bootstrap(40, 0))
    assert of is not None
    assert apart is not None
    assert of.plain[0] > 5 * abs(of.unbiased[0])
    assert apart.plain[0] == pytest.approx(apart.unbiased[0])


outcomes = st.lists(st.sampled_from((-1, 1)), min_size=2, max_size=6)


@given(outcomes=outcomes, data=st.data(), lambda_=st.sampled_from((0.5, 1.0, 3.0)))
@settings(max_examples=40, deadline=None)
def test_the_terms_add_up_to_the_advantages_that_train(
    outcomes: list[int], data: st.DataObject, lambda_: float
) -> None:
    steps = st.lists(st.lists(st.sampled_from((-1, 0, 1)), min_size=2, max_size=2), min_size=1)
    scores = [data.draw(steps) for _ in outcomes]
    own = FeedbackSettings(policy_lambda=lambda_, policy_window=(0, 1))
    assert has_terms(own)
    assert not has_terms(own.model_copy(update={"policy_reward": "outcome"}))
    whole = task_signals(outcomes, scores, own).policy
    term = own.model_copy(update={"advantage": AdvantageConfig.model_validate(one_term)})
    rewards = [0.3] * len(outcomes)
    one, other = (
        task_signals(
            outcomes, scores, term.model_copy(update={"policy_reward": name}), rewards
        ).policy
        for name in TERMS
    )
    for row in range(len(outcomes)):
        assert np.add(one[row], other[row]) == pytest.approx(whole[row], abs=1e-9)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two iterations, with all its weights."""
    directory = tmp_path_factory.mktemp("gradients") / "run"
    with pytest.MonkeyPatch.context() as monkeypatch:
        told = ("loop.iterations=2", "loop.tasks=16", "loop.tasks_per_iteration=4")
        more = ("evaluation.episodes=0", "policy.minibatches=1", "checkpoints.every=1")
        assert call(monkeypatch, "train", str(GUESS), f"run_dir={directory}", *told, *more) == 0
    return directory


@pytest.fixture(scope="module")
def played(run: Path, tmp_path_factory: pytest.TempPathFactory) -> PlayedIteration:
    """The second iteration with its own number of rollouts."""
    recipe = measured_recipe(RunTarget(str(run)).recipe((), allow_code=True))
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    folder = tmp_path_factory.mktemp("images")
    return play(run, recipe, domain, 2, 32, folder, Progress(Terminal(quiet=True)))


def test_an_iteration_played_again_is_the_one_that_trained(
    run: Path, played: PlayedIteration
) -> None:
    trained = {
        f"{one.id}/{i}": step.advantage
        for one in open_run(run).trajectories(2)
        for i, step in enumerate(one.steps)
        if step.advantage
    }
    groups = played.groups[: played.sampled]
    again = {s.source: s.advantage for group in groups for s in group.samples("policy")}
    assert again == trained
    assert len(played.judges.judges) == 1


def test_gradients_add_up_over_tasks_and_terms(played: PlayedIteration) -> None:
    model = played.components.trained_models["policy"]
    assert isinstance(model, TrainedModel)
    settings = played.recipe.feedback
    one, other = (
        task_gradients(
            model,
            "policy",
            "policy",
            [of_term(group, played.judges, settings, term) for group in played.groups],
            lambda _: None,
        )
        for term in TERMS
    )
    samples = [s for group in played.groups for s in group.samples("policy")]
    whole = model.learner.gradient(samples).numpy() * len(samples)
    assert np.linalg.norm(one) > 0 < np.linalg.norm(other)
    assert np.linalg.norm((one + other).sum(0) - whole) < 1e-4 * np.linalg.norm(whole)


def test_the_command_compares_every_iteration(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Plan\n\n## Results\n\nNot run yet.\n")
    told = ("gradients", str(run), "--rollouts=48", "--allow-code")
    assert call(monkeypatch, *told, f"--page={page}", "--json") == 0
    [read] = json.loads(capsys.readouterr().out)["runs"]
    assert min(read["rollouts"].values()) >= 48
    rows = {(row["iteration"], row["role"], *row["compared"]): row for row in read["rows"]}
    assert len(rows) == len(read["rows"]) == 15
    assert rows[1, "policy", "outcome", "judge"]["agreement"] is not None
    assert rows[1, "policy", "original", "adapted"]["agreement"] is None
    assert rows[1, "judge", "iteration before", "iteration"]["agreement"] is None
    assert rows[2, "judge", "iteration before", "iteration"]["agreement"] is not None
    text = page.read_text()
    assert text.startswith("# Plan\n\n## Results\n\n`rlanything gradients ")
    assert "| 1 | policy | original, adapted | 6, 0 | none |" in text


def test_models_and_folders_that_cannot_be_measured_are_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert "is not a run directory" in refused(monkeypatch, capsys, "gradients", str(tmp_path))
    monkeypatch.setattr(measuring, "MOST_BYTES", 1000)
    assert call(monkeypatch, "gradients", str(run), "--rollouts=8", "--allow-code") == 2
    assert "ask for fewer --rollouts" in capsys.readouterr().err
