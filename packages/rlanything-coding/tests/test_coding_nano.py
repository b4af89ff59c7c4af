"""The command that makes the nano models for coding, in miniature, and a loop with them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rlanything.config.recipe import load_recipe
from rlanything.config.shipped import shipped_files
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from rlanything_coding.teacher import CodingTeacher
from rlanything_nano.unit_test_domains import UnitTestDomainBuilder

ROLES = ("policy", "judge", "adapter")
QUIET = Progress(Console(quiet=True))
RECIPE = shipped_files()["coding-nano"]


def build(folder: Path, seed: int) -> dict[str, str]:
    teacher = CodingTeacher()
    plan = replace(
        teacher.plan,
        domain="coding",
        seed=seed,
        difficulty=(1, 1),
        problems=16,
        adapter_problems=4,
        epochs=1,
        hidden=32,
        layers=1,
        episodes=2,
    )
    measured = UnitTestDomainBuilder(plan, teacher, folder, 0, QUIET).build()
    assert measured.keys() == {"policy", "judge", "adapter", "minutes"}
    return {
        role: hashlib.sha256((folder / role / "model.safetensors").read_bytes()).hexdigest()
        for role in ROLES
    }


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("nano-coding")
    return folder, build(folder, 0)


@pytest.mark.slow
def test_a_build_is_decided_by_its_seed(
    models: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    assert build(tmp_path / "again", 0) == models[1]
    other = build(tmp_path / "other", 1)
    assert all(other[role] != models[1][role] for role in ROLES)


def test_models_that_know_nothing_go_through_the_loop(
    models: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    overrides = [
        *(f"{role}.model={models[0] / role}" for role in ROLES),
        *(f"run_dir={tmp_path / 'run'}", "threads=1", "loop.iterations=2", "loop.tasks=4"),
        *("loop.tasks_per_iteration=2", "loop.rollouts_per_task=4", "judge.samples_per_step=2"),
        *("evaluation.episodes=2", "evaluation.rollouts_per_task=2", "adapter.tries=2"),
        *("policy.max_tokens=12", "judge.max_tokens=12", "adapter.max_tokens=12"),
        "domain.options={difficulty: [1, 1], tests: 2}",
    ]
    lines = Trainer(load_recipe(RECIPE, overrides), progress=QUIET).train()
    assert any(line.startswith("policy, ood: 0.0%") for line in lines)
    store = Store(tmp_path / "run" / "run.sqlite")
    episodes = store.query("SELECT DISTINCT outcome, reward, steps FROM trajectories")
    tests = store.query("SELECT COUNT(*), COUNT(DISTINCT score) FROM judgements")
    asked = store.query("SELECT COUNT(*) FROM proposals")
    store.close()
    assert episodes == [(-1, 0.0, 1)]
    assert tests == [(2 * 2 * 4 * 2, 1)]
    assert asked[0][0] > 0
