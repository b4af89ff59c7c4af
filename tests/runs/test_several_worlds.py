"""A run in two worlds: each has its tasks, bounds, held-out splits and metrics."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from helpers.paths import ROOT, TESTS
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.domains.registry import load_domain
from rlanything.progress import Progress
from rlanything.runs.build import pool_worlds
from rlanything.runs.eval_target import EvalArgs, run_eval
from rlanything.runs.report.facts import Reader
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

RECIPE = ROOT / "examples" / "two-worlds.yaml"
QUIET = Progress(Console(quiet=True))
WORLDS = "[{name: 'guess:Guess'}, {name: 'guess:Guess', label: wide, weight: 2.0, MORE}]"
SMALL = (
    f"domains={WORLDS.replace('MORE', 'alpha_high: 0.5, policy_window: [0.0, 1.0]')}",
    *(f"{role}.model=nano-guess" for role in ("policy", "judge", "adapter")),
    *("policy.thought_tokens=8", "policy.max_tokens=16", "judge.max_tokens=32"),
    *("loop.iterations=2", "loop.tasks=9", "loop.tasks_per_iteration=3"),
    *("loop.rollouts_per_task=4", "environment.workers=0"),
    *("evaluation.episodes=4", "evaluation.judged_episodes=4"),
)
KILLED = """
import sys
from pathlib import Path
from helpers.survivor import DeadlyView, attempt
recipe, run, *overrides = sys.argv[1:]
print(attempt(Path(recipe), Path(run), overrides, 0, DeadlyView("checkpoint", 3, 0.0)))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds") / "run"
    Trainer(load_recipe(RECIPE, [f"run_dir={folder}", *SMALL]), progress=QUIET).train()
    return folder


def test_tasks_metrics_and_evaluations_are_by_world(run: Path) -> None:
    with closing(Store(run / "run.sqlite")) as store:
        roots = Counter(slot.partition("/")[0] for (slot,) in store.query("SELECT slot FROM slots"))
        assert roots == {"guess": 3, "wide": 6}
        metrics = {name: value or 0.0 for name, value in store.metrics(1).items()}
        before = store.metrics(0)
        assert metrics["rollouts/episodes/guess"] == 4
        assert metrics["rollouts/episodes/wide"] == 8
        mixed = metrics["rollouts/success/guess"] + 2 * metrics["rollouts/success/wide"]
        assert metrics["rollouts/success"] == pytest.approx(mixed / 3)
        assert metrics["policy/window_share/wide"] == 1, "its own window is open"
        assert {"evaluation/guess/in_domain/success", "evaluation/wide/in_domain/success"} < set(
            before
        )
        judged = Counter(t.task.id.partition("/")[0] for t in store.judge_eval_episodes())
        assert judged == {"guess": 2, "wide": 2}
        facts = Reader(store, run).facts()
        [(closing_text,)] = store.query("SELECT value FROM run WHERE key = 'closing'")
    curves = [curve.name for curve in facts.policy.curves]
    assert curves == ["guess/in_domain", "wide/in_domain", "rollouts"]
    assert facts.domain == "guess:Guess + guess:Guess"
    lines = json.loads(closing_text)
    for label in ("guess", "wide"):
        assert any(line.startswith(f"policy, {label}/in_domain: ") for line in lines)


def test_eval_tells_worlds_apart(run: Path) -> None:
    args = EvalArgs(str(run), "in_domain", 6, None, None, None, 0, 0)
    assert {k: len(v) for k, v in run_eval(args, QUIET).by_kind().items()} == {
        "guess": 2,
        "wide": 4,
    }


def test_a_killed_run_is_resumed_bit_for_bit(run: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, RECIPE, killed, *SMALL]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "9", done.stderr
    Trainer.resume(killed, progress=QUIET).train()
    with (
        closing(Store(run / "run.sqlite")) as whole,
        closing(Store(killed / "run.sqlite")) as parted,
    ):
        assert [*parted.dump()] == [*whole.dump()]
    for role in ("policy", "judge"):
        weights = f"checkpoints/iter-00002/{role}/model.safetensors"
        assert (killed / weights).read_bytes() == (run / weights).read_bytes()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ("MORE", "alpha_low: 0.9"),
            "domains.1: alpha_low (0.9) must be below alpha_high (0.8) in",
        ),
        (("MORE", "alpha_low: 0.1"), "domains.1.alpha_low: tasks of wide are not rewritten (curr"),
    ],
)
def test_bounds_that_do_not_hold_are_refused(settings: tuple[str, str], said: str) -> None:
    adapts = f"curriculum.adapt_tasks={str('0.9' in settings[1]).lower()}"
    recipe = load_recipe(RECIPE, [f"domains={WORLDS.replace(*settings)}", adapts])
    with pytest.raises(RecipeError) as error:
        pool_worlds(recipe, load_domain(recipe.domain.name, recipe.domain.options))
    assert said in str(error.value)


def test_a_world_that_cannot_rewrite_is_never_asked() -> None:
    worlds = "domains=[{name: 'guess:Guess'}, {name: text}]"
    recipe = load_recipe(RECIPE, [worlds])
    made = pool_worlds(recipe, load_domain(recipe.domain.name, recipe.domain.options))
    assert (made["guess"].alpha_low, made["guess"].alpha_high) == (0.2, 0.8)
    assert (made["text"].alpha_low, made["text"].alpha_high) == (0, 1)
