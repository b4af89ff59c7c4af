"""A judge that does not learn: what a run still does with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from helpers.guess import FEW, GUESS
from rlanything.config.recipe import load_recipe
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

SMALL = (
    "judge.train=false",
    "loop.tasks_per_iteration=2",
    "loop.rollouts_per_task=3",
    "loop.max_steps=8",
    "evaluation.episodes=3",
    "evaluation.splits=[in_domain]",
    "evaluation.judged_episodes=2",
)


def run_frozen(folder: Path, *overrides: str) -> Store:
    recipe = load_recipe(GUESS, [*FEW, f"run_dir={folder}", *SMALL, *overrides])
    Trainer(recipe, progress=Progress(Console(quiet=True))).train()
    return Store(folder / "run.sqlite")


def judged_right(store: Store, iteration: int) -> float | None:
    return store.metrics(iteration)["evaluation/judge/positive_rate"]


def test_a_frozen_judge_scores_and_is_examined_and_has_no_checkpoint(tmp_path: Path) -> None:
    store = run_frozen(tmp_path / "run", "loop.iterations=1")
    assert store.query("SELECT COUNT(*) FROM judgements")[0][0] > 0
    assert judged_right(store, 0) == judged_right(store, 1) is not None
    assert not store.query("SELECT * FROM samples WHERE role = 'judge'")
    roles = [each.name for each in (tmp_path / "run/checkpoints/iter-00001").iterdir()]
    assert "policy" in roles
    assert "judge" not in roles
    store.close()
    recipe = Trainer.resume(
        tmp_path / "run", overrides=["loop.iterations=2"], progress=Progress(Console(quiet=True))
    )
    recipe.train()
    store = Store(tmp_path / "run" / "run.sqlite")
    assert store.last_iteration() == (2, "iter-00002")
    store.close()


@pytest.mark.parametrize(
    ("override", "asked"),
    [
        ("loop.iterations=1", False),
        ("curriculum.adapt_tasks=true", True),
        ("feedback.policy_reward=judge", True),
    ],
)
def test_a_judge_is_asked_in_training_where_somebody_reads_its_scores(
    override: str, asked: bool
) -> None:
    alone = ("feedback.policy_reward=outcome", "curriculum.adapt_tasks=false")
    assert load_recipe(GUESS, [*FEW, "judge.train=false", *alone, override]).reads_scores == asked
    assert load_recipe(GUESS, [*FEW, *alone]).reads_scores, "a judge that learns is asked"


def test_where_nobody_reads_its_scores_the_judge_is_examined_only(tmp_path: Path) -> None:
    store = run_frozen(
        tmp_path / "run",
        "loop.iterations=1",
        "feedback.policy_reward=outcome",
        "curriculum.adapt_tasks=false",
    )
    assert store.query("SELECT COUNT(*) FROM judgements")[0][0] == 0
    assert store.query("SELECT COUNT(*) FROM steps")[0][0] > 0
    assert judged_right(store, 1) is not None
    assert store.metrics(1)["judge/positive_rate"] is None
    store.close()
