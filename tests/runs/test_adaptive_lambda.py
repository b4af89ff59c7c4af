"""A run whose lambda adapts: all of it follows from its store, and resuming changes nothing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from helpers.guess import FEW, GUESS
from rlanything.algorithm.agreement import adapted
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.progress import Progress
from rlanything.records import Trajectory
from rlanything.roles.judges.base import FunctionJudge
from rlanything.runs.refusals import check_values
from rlanything.runs.report.facts import Reader
from rlanything.runs.report.payload import build
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from rlanything.seeds import derive

ADAPTIVE = (
    "feedback.policy_lambda_control=adaptive",
    "feedback.policy_lambda=0.5",
    "feedback.advantage=leave_one_out",
    "judge.train=false",
    "roles.critic={does: scores, name: oracle, weight: 0.5}",
    "curriculum.adapt_tasks=false",
    "evaluation.episodes=0",
    "loop.tasks_per_iteration=6",
    "environment.workers=0",
)
QUIET = Progress(Console(quiet=True))


def knowing(share: float) -> FunctionJudge:
    """A judge that says the outcome on this share of the steps, and its opposite on the others."""

    def score(trajectory: Trajectory, i: int) -> int:
        right = derive(0, f"{share}", trajectory.id, i) % 100 < 100 * share
        return trajectory.outcome if right else -trajectory.outcome

    return FunctionJudge(score)


JUDGES = {"judge": knowing(0.8), "critic": knowing(0.6)}


def train(folder: Path, *overrides: str) -> Path:
    recipe = load_recipe(GUESS, [*FEW, f"run_dir={folder}", *ADAPTIVE, *overrides])
    Trainer(recipe, judge=JUDGES, progress=QUIET).train()
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("adaptive") / "run")


def test_lambda_is_measured_on_the_recorded_scores_of_all_iterations(run: Path) -> None:
    with closing(Store(run / "run.sqlite")) as store:
        measured = store.agreements()
        for iteration in (1, 2):
            metrics = store.metrics(iteration)
            lambdas = adapted(0.5, measured, iteration)
            assert {name: metrics[f"{name}/lambda"] for name in lambdas} == lambdas
    second = adapted(0.5, measured, 2)
    assert 0 < second["judge"] < 0.5
    assert second["judge"] != adapted(0.5, {2: measured[2]}, 2)["judge"]
    assert second["critic"] not in (0, second["judge"])


def test_the_policy_trains_on_the_weighted_scores_times_their_lambdas(run: Path) -> None:
    with closing(Store(run / "run.sqlite")) as store:
        lambdas = {name: store.metrics(2)[f"{name}/lambda"] or 0.0 for name in ("judge", "critic")}
        rows = store.query(
            "SELECT task, id, outcome, s.step, s.advantage, j.score, c.score FROM trajectories"
            " JOIN steps s ON s.trajectory = number"
            " JOIN judgements j ON j.trajectory = number AND j.step = s.step AND j.role = 'judge'"
            " JOIN judgements c ON c.trajectory = number AND c.step = s.step AND c.role = 'critic'"
            " WHERE iteration = 2"
        )
        accuracy = dict(store.query("SELECT task, accuracy FROM groups WHERE iteration = 2"))
    feedback: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for task, name, outcome, _, advantage, judge, critic in rows:
        own = outcome + (lambdas["judge"] * judge + 0.5 * lambdas["critic"] * critic) / 1.5
        feedback.setdefault(task, {}).setdefault(name, []).append((own, advantage or 0.0))
    compared = 0
    for task, trajectories in feedback.items():
        if 0 < accuracy[task] < 1:
            means = {
                n: sum(own for own, _ in steps) / len(steps) for n, steps in trajectories.items()
            }
            for name, steps in trajectories.items():
                baseline = sum(m for n, m in means.items() if n != name) / (len(means) - 1)
                for own, advantage in steps:
                    assert advantage == pytest.approx(own - baseline, abs=1e-9)
                    compared += 1
    assert compared


def test_the_report_shows_the_reward_that_the_policy_learned_from(run: Path) -> None:
    with closing(Store(run / "run.sqlite")) as store:
        rewards = build([Reader(store, run)]).facts["runs"][0]["rewards"]
        lambdas = {name: store.metrics(2)[f"{name}/lambda"] for name in ("judge", "critic")}
    assert rewards["lambdas"][2] == lambdas


def test_a_resumed_run_measures_the_same_lambda(run: Path, tmp_path: Path) -> None:
    half = train(tmp_path / "half", "loop.iterations=1")
    more = ["loop.iterations=2"]
    Trainer.resume(half, overrides=more, judge=JUDGES, progress=QUIET).train()
    with closing(Store(run / "run.sqlite")) as one, closing(Store(half / "run.sqlite")) as other:
        samples = "SELECT * FROM samples ORDER BY 1, 2, 3"
        assert one.query(samples) == other.query(samples)
        named = "SELECT * FROM metrics WHERE name LIKE '%/lambda' ORDER BY 1, 2"
        assert one.query(named) == other.query(named) != []


def test_a_judge_of_value_has_no_lambda() -> None:
    values = ["judge.name=value", "feedback.judge_reward=proper", "feedback.judge_window=[0, 1]"]
    recipe = load_recipe(GUESS, [*values, "feedback.policy_lambda_control=adaptive"])
    with pytest.raises(RecipeError, match="policy_lambda_control: adaptive weighs scores of steps"):
        check_values(recipe)
