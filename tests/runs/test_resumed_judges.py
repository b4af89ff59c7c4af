"""A run with a judge that learns and one that is frozen, killed and resumed, is the same run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from helpers.paths import TESTS, TINY
from rlanything.config.recipe import load_recipe
from rlanything.engines import shipped
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

SMALL = (
    "loop.tasks_per_iteration=2",
    "loop.rollouts_per_task=3",
    "loop.max_steps=5",
    "judge.samples_per_step=2",
    "evaluation.episodes=2",
    "evaluation.splits=[in_domain]",
    "evaluation.judged_episodes=1",
    "feedback.policy_window=[0, 1]",
    "feedback.judge_window=[0, 1]",
    "feedback.judge_reward.options.balance=none",
)
KILLED = """
import sys
from pathlib import Path
from helpers.survivor import DeadlyView, attempt
tiny, run, *overrides = sys.argv[1:]
print(attempt(Path(tiny), Path(run), overrides, 0, DeadlyView("checkpoint", 3, 0.0)))
"""


@pytest.fixture(scope="module")
def overrides(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A second judge of another model: that of the first before training, in a folder."""
    folder = tmp_path_factory.mktemp("models") / "critic"
    shutil.copytree(shipped.resolve("nano", "judge"), folder)
    critic = f"{{does: scores, model: '{folder}', max_tokens: 24, train: false, weight: 0.5}}"
    return [f"roles.critic={critic}", "environment.workers=0", *SMALL]


def left_by(run: Path) -> tuple[list[str], dict[str, bytes]]:
    """The rows of a run's store, and the weights of its last checkpoint by role."""
    with closing(Store(run / "run.sqlite")) as store:
        rows = [*store.dump()]
    folder = run / "checkpoints" / "iter-00002"
    return rows, {f.parent.name: f.read_bytes() for f in folder.glob("*/model.safetensors")}


def test_a_killed_run_with_two_judges_is_resumed_bit_for_bit(
    overrides: list[str], tmp_path: Path
) -> None:
    whole, killed, quiet = tmp_path / "whole", tmp_path / "killed", Progress(Console(quiet=True))
    recipe = load_recipe(TINY, [f"run_dir={whole}", *overrides])
    Trainer(recipe, progress=quiet).train()
    command = [sys.executable, "-c", KILLED, TINY, killed, *overrides]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "9", done.stderr
    with closing(Store(killed / "run.sqlite")) as store:
        assert store.last_iteration() == (1, "iter-00001")
    Trainer.resume(killed, progress=quiet).train()

    rows, weights = left_by(killed)
    assert (rows, weights) == left_by(whole)
    assert weights.keys() == {"policy", "judge"}, "a frozen judge has no checkpoint"
    with closing(Store(killed / "run.sqlite")) as store:
        trained = {role for (role,) in store.query("SELECT DISTINCT role FROM samples")}
        judged = dict(store.query("SELECT role, COUNT(*) FROM judgements GROUP BY role"))
    assert trained == {"policy", "judge"}
    assert judged["critic"] * 2 == judged["judge"] * 3, "three judgements of a step and two"
