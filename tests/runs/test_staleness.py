"""Runs whose updates do not wait for every episode (`loop.max_staleness`)."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from helpers.guess import FEW, GUESS
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.domains.registry import load_domain
from rlanything.progress import Progress
from rlanything.runs.build import new_pool
from rlanything.runs.checkpoint import load_pool
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

STALE = (
    *FEW,
    *("loop.max_staleness=1", "environment.lockstep=false", "environment.workers=2"),
    *("loop.iterations=4", "loop.tasks=8", "loop.tasks_per_iteration=2"),
    *("evaluation.every=2", "evaluation.episodes=4", "evaluation.judged_episodes=2"),
)


def begun(folder: Path, *overrides: str) -> Trainer:
    recipe = load_recipe(GUESS, [*STALE, f"run_dir={folder}", *overrides])
    return Trainer(recipe, progress=Progress(Console(quiet=True)))


def test_a_run_goes_on_from_what_was_under_way(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for record in begun(folder):
        active = [g for g in record.groups if not g.scheduled.candidate]
        assert len(active) == 2
        break
    pool = load_pool(folder / "checkpoints" / "iter-00001")
    assert list(pool.under_way.values()) == [1, 1]
    lines: list[str] = []
    progress = Progress(Console(quiet=True))
    progress.log = lines.append  # type: ignore[method-assign]
    resumed = Trainer.resume(folder, progress=progress)
    ages = Counter[int]()
    for record in resumed:
        ages.update(record.number - group.scheduled.begun for group in record.groups)
    assert set(ages) == {0, 1}
    assert any("2 tasks were under way and begin again" in line for line in lines)
    with closing(Store(folder / "run.sqlite")) as store:
        assert store.metrics(2)["rollouts/under_way"] == 2
        assert store.metrics(2)["rollouts/staleness_max"] == 1
        assert store.metrics(4)["rollouts/under_way"] == 0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("environment.lockstep=true", "needs environment.lockstep: false"),
        ("loop.max_staleness=4", "10 tasks are under way at once and there are 8"),
    ],
)
def test_what_cannot_be_is_refused(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipe(GUESS, [*STALE, override])


def test_fewer_tasks_than_are_under_way_are_refused_before_anything_is_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = load_recipe(GUESS, [*STALE, "loop.max_staleness=3"])
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    five = domain.tasks("train", 5, 0)
    monkeypatch.setattr(domain, "tasks", lambda *_: five)
    with pytest.raises(RecipeError, match=r"with loop\.max_staleness 8 under way, but .* has 5"):
        new_pool(recipe, domain)
