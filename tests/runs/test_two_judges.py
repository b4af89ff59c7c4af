"""A run with two judges: each has its rows, metrics, gains and curves, by the name of its role."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from helpers.neighbours import needs_plugin
from helpers.paths import TINY
from rlanything.config.recipe import load_recipe
from rlanything.progress import Progress
from rlanything.runs.open import open_run
from rlanything.runs.report.facts import Reader
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

SMALL = (
    "roles.critic={does: scores, name: oracle, options: {noise: 0.2}, weight: 0.5}",
    "loop.iterations=1",
    "loop.tasks_per_iteration=2",
    "loop.rollouts_per_task=3",
    "loop.max_steps=6",
    "evaluation.episodes=3",
    "evaluation.splits=[in_domain]",
    "evaluation.judged_episodes=2",
    "feedback.policy_window=[0, 1]",
    "feedback.judge_window=[0, 1]",
)

pytestmark = needs_plugin("domain", "alfworld")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one iteration with the shipped judge, which learns, and an oracle with noise."""
    folder = tmp_path_factory.mktemp("judges") / "run"
    recipe = load_recipe(TINY, [f"run_dir={folder}", *SMALL])
    Trainer(recipe, progress=Progress(Console(quiet=True))).train()
    return folder


@pytest.fixture
def store(run: Path) -> Iterator[Store]:
    with closing(Store(run / "run.sqlite")) as opened:
        yield opened


def test_rows_say_which_role_wrote_them(run: Path, store: Store) -> None:
    assert store.roles() == {
        "policy": "acts",
        "judge": "scores",
        "critic": "scores",
        "adapter": "rewrites",
    }
    assert store.query("SELECT DISTINCT role FROM steps") == [("policy",)]
    [steps] = store.query("SELECT COUNT(*) FROM steps")[0]
    each = dict(store.query("SELECT role, COUNT(*) FROM judgements GROUP BY role"))
    assert each.keys() == {"judge", "critic"}
    assert each["judge"] % steps == each["critic"] % steps == 0
    trained = {role for (role,) in store.query("SELECT DISTINCT role FROM samples")}
    assert trained <= {"policy", "judge"}
    step = open_run(run).trajectories(1)[0].steps[0]
    assert {judgement.by for judgement in step.judgements} == {"judge", "critic"}


def test_every_judge_has_the_metrics_of_a_judge(store: Store) -> None:
    metrics = store.metrics(1)
    own = {
        judge: {name.split("/", 1)[1] for name in metrics if name.startswith(f"{judge}/")}
        for judge in ("judge", "critic")
    }
    assert {"p_plus", "mu", "balanced_process_accuracy", "window_share"} <= own["critic"]
    # Only what learns is updated, and only a model is asked for tokens.
    assert all(name in own["judge"] for name in own["critic"])
    assert {"kl", "updates"} <= own["judge"] - own["critic"]
    assert metrics["critic/window_share"] is None
    assert metrics["evaluation/critic/positive_rate"] is not None


def test_report_and_closing_lines_speak_of_both(run: Path, store: Store) -> None:
    judge, critic = Reader(store, run).facts().judges
    assert (judge.name, critic.name) == ("judge", "critic")
    assert all(one.curves and one.disagreements for one in (judge, critic))
    assert "not trained" in {each.verdict for each in critic.verdicts}
    [(closing_text,)] = store.query("SELECT value FROM run WHERE key = 'closing'")
    assert any(line.startswith("critic, Outcome Acc: ") for line in json.loads(closing_text))
