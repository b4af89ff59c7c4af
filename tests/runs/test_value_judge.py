"""A run with a judge of value: its grades train it and the policy, and are measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from helpers.guess import train_once
from rlanything.roles.judges import llm
from rlanything.runs.report.facts import Reader
from rlanything.runs.store.store import Store

VALUE = (
    *("judge.name=value", "feedback.judge_reward=proper", "feedback.judge_window=[0, 1]"),
    *("feedback.policy_window=[0, 1]", "loop.tasks_per_iteration=2", "loop.rollouts_per_task=3"),
    "feedback.advantage={name: gae, options: {gae_lambda: 0}}",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one iteration; the shipped judge knows no grades, so its answers get some."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(llm, "grade_of", lambda written, _: len(written.text) % 12 - 1)
        return train_once(tmp_path_factory.mktemp("value") / "run", *VALUE)


@pytest.fixture
def store(run: Path) -> Iterator[Store]:
    with closing(Store(run / "run.sqlite")) as opened:
        yield opened


def test_what_the_policy_is_taught_sums_to_the_outcome_above_the_groups_mean(store: Store) -> None:
    outcomes: dict[str, list[int]] = defaultdict(list)
    episodes: dict[str, list[float]] = defaultdict(list)
    for task, outcome, taught in store.query(
        "SELECT task, outcome, (SELECT TOTAL(advantage) FROM steps WHERE trajectory = number)"
        " FROM trajectories ORDER BY number"
    ):
        outcomes[task].append(outcome)
        episodes[task].append(taught)
    for task, own in outcomes.items():
        mean = sum(own) / len(own)
        assert episodes[task] == pytest.approx([outcome - mean for outcome in own])


def test_every_step_trains_the_judge_and_its_calibration_is_measured(store: Store) -> None:
    metrics = dict(store.query("SELECT name, value FROM metrics WHERE iteration = 1"))
    assert metrics["judge/trained_share"] > 0.5
    assert metrics["judge/window_share"] == 1
    for room in ("", "evaluation/"):
        brier, *parts = (
            metrics[f"{room}judge/{name}"]
            for name in ("brier", "reliability", "resolution", "uncertainty")
        )
        assert brier == pytest.approx(parts[0] - parts[1] + parts[2])
        assert 0 <= metrics[f"{room}judge/quadratic_score"] <= 1
        assert any(name.startswith(f"{room}judge/won_at_grade_") for name in metrics)


def test_the_report_compares_one_figure_of_its_calibration(run: Path, store: Store) -> None:
    [judge] = Reader(store, run).facts().judges
    names = [verdict.gain.name for verdict in judge.verdicts]
    assert names == ["quadratic score", "Outcome Acc"]
