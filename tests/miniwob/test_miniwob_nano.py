"""The command that makes the nano models for web tasks, in miniature, and a loop with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rlanything.config import load_recipe
from rlanything.environments.miniwob.domain import MiniWob
from rlanything.nano.episodes import Builder
from rlanything.nano.plans import EPISODES
from rlanything.runs.store import Store
from rlanything.training import Run
from rlanything.view import View

ROLES = ("policy", "judge", "adapter")
QUIET = View(Console(quiet=True))
RECIPE = Path(__file__).parent.parent.parent / "recipes" / "miniwob-nano.yaml"


@pytest.fixture(scope="module")
def models(miniwob: MiniWob, tmp_path_factory: pytest.TempPathFactory) -> Path:
    del miniwob  # which skips where there is no browser
    folder = tmp_path_factory.mktemp("nano-miniwob")
    plan = replace(
        EPISODES["miniwob"],
        games=40,
        judged_games=4,
        criticised_games=4,
        adapter_games=20,
        hidden=32,
        layers=1,
        episodes=4,
    )
    measured = Builder(plan, folder, 0, QUIET).build()
    assert measured.keys() == {"policy", "judge", "adapter", "minutes"}
    assert measured["judge"]["outcome_accuracy"] is not None
    return folder


def test_models_that_know_nothing_go_through_the_loop(models: Path, tmp_path: Path) -> None:
    overrides = [
        *(f"{role}.model={models / role}" for role in ROLES),
        *(f"run_dir={tmp_path / 'run'}", "threads=1", "loop.iterations=1", "loop.tasks=4"),
        *("loop.tasks_per_iteration=2", "loop.rollouts_per_task=2", "judge.samples_per_step=2"),
        *("evaluation.episodes=2", "adapter.tries=2", "loop.max_steps=2"),
        *("policy.max_tokens=8", "judge.max_tokens=8", "adapter.max_tokens=8"),
    ]
    lines = Run(load_recipe(RECIPE, overrides), QUIET).train()
    assert any(line.startswith("policy, ood: 0.0%") for line in lines)
    store = Store(tmp_path / "run" / "run.sqlite")
    episodes = store.query("SELECT COUNT(*), MAX(outcome), MAX(steps) FROM trajectories")
    asked = store.query("SELECT COUNT(*) FROM proposals")
    store.close()
    assert episodes == [(4, -1, 2)]
    assert asked == [(2,)]
