"""A run that takes its evaluation before training from another is the run it would have been."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from helpers.guess import FEW, GUESS
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.progress import Progress
from rlanything.runs.baseline import has_baseline
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

SMALL = (
    "loop.iterations=1",
    "loop.tasks_per_iteration=2",
    "loop.max_steps=6",
    "environment.workers=0",
    "evaluation.episodes=4",
    "evaluation.judged_episodes=2",
)


class Watch(Progress):
    """Notes which phases there were."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True))
        self.phases: list[str] = []

    def phase(self, name, total, unit):
        self.phases.append(name)
        return super().phase(name, total, unit)


def trained(folder: Path, *more: str) -> list[str]:
    """The phases of a run."""
    progress = Watch()
    Trainer(GUESS, overrides=[*FEW, *SMALL, f"run_dir={folder}", *more], progress=progress).train()
    return progress.phases


def dumped(folder: Path) -> list[str]:
    with closing(Store(folder / "run.sqlite")) as store:
        return store.dump()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    assert trained(folder).count("eval in_domain") == 2
    return folder


def test_it_ends_as_if_it_had_been_evaluated_itself(first: Path, tmp_path: Path) -> None:
    phases = trained(tmp_path / "second", f"evaluation.baseline={first}")
    assert phases.count("eval in_domain") == 1
    assert dumped(tmp_path / "second") == dumped(first)


def test_what_a_run_learns_by_is_its_own_affair(first: Path) -> None:
    for change in ("judge.train=false", "policy.learning_rate=0.1", "feedback.policy_reward=judge"):
        assert has_baseline(first, load_recipe(GUESS, [*FEW, *SMALL, change]))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("seed=1", "seed"),
        ("policy.temperature=0.5", "policy.temperature"),
        ("judge.samples_per_step=5", "judge.samples_per_step"),
        ("feedback.judge_lambda=4", "feedback.judge_lambda"),
        ("loop.max_steps=7", "loop.max_steps"),
        ("evaluation.seed=3", "evaluation.seed"),
    ],
)
def test_a_run_that_began_otherwise_is_refused_before_anything_is_written(
    first: Path, tmp_path: Path, change: str, key: str
) -> None:
    with pytest.raises(RecipeError, match=rf"evaluation.baseline: .*began otherwise \({key} diff"):
        trained(tmp_path / "second", f"evaluation.baseline={first}", change)
    assert not (tmp_path / "second").exists()


def test_what_is_no_run_or_was_not_evaluated_is_refused(first: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"evaluation.baseline: .*nothing is no run; give the"):
        trained(tmp_path / "second", f"evaluation.baseline={tmp_path / 'nothing'}")
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(first / "recipe.yaml", bare)
    with pytest.raises(RecipeError, match=r"evaluation.baseline: .*is not a run directory"):
        trained(tmp_path / "second", f"evaluation.baseline={bare}")
    Store.create(bare / "run.sqlite").close()
    with pytest.raises(RecipeError, match="was not evaluated before training; leave it out"):
        trained(tmp_path / "second", f"evaluation.baseline={bare}")
    damaged = tmp_path / "damaged"
    shutil.copytree(first, damaged)
    pages = bytearray((damaged / "run.sqlite").read_bytes())
    pages[4096:] = bytes(len(pages) - 4096)
    (damaged / "run.sqlite").write_bytes(pages)
    with pytest.raises(RecipeError, match=r"evaluation.baseline: .*run\.sqlite.*leave it out"):
        trained(tmp_path / "second", f"evaluation.baseline={damaged}")
    assert not has_baseline(damaged, load_recipe(GUESS, [*FEW, *SMALL]))
