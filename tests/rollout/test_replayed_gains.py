"""Values of states by replays, and the judge that learns from the gains they measure."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.guess import train_once
from helpers.paths import ROOT
from rlanything.algorithm.feedback import FeedbackSettings, RewardConfig
from rlanything.algorithm.signals import task_signals
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.plugins import PluginError
from rlanything.records import Completion, JudgedTrajectory, Judgement, Task, Trajectory
from rlanything.roles.baselines import RandomAgent
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.replays import Replayer, Value, advantage, disputed
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.refusals import check_values
from rlanything.runs.store.store import Store

TRIES = 4
MEASURED = FeedbackSettings(judge_window=(0, 1), judge_reward=RewardConfig(name="replays"))


@pytest.fixture(scope="module")
def guess() -> Iterator[Domain]:
    sys.path.insert(0, str(ROOT / "examples"))
    yield load_domain("guess:Guess", {})
    sys.path.remove(str(ROOT / "examples"))


def won_from(step: int) -> float:
    """The chance to guess one of eight numbers at random in the tries that are left."""
    return 1 - (7 / 8) ** (TRIES - step)


def played(domain: Domain, environments: EnvironmentPool, count: int) -> tuple[Trajectory, ...]:
    task = Task("t", "Guess.", data={"secret": 3, "tries": TRIES})
    requests = [RolloutRequest(f"t/{i}", task, i) for i in range(count)]
    return rollout(RandomAgent(domain), environments, requests, TRIES, 8).trajectories


def test_a_value_is_the_share_of_replays_that_are_won(guess: Domain) -> None:
    with EnvironmentPool(guess, {}, 0, math.inf) as environments:
        lost = next(t for t in played(guess, environments, 20) if t.outcome == -1)
        replayer = Replayer(RandomAgent(guess), environments, 800, TRIES)
        states = [(lost, i) for i in range(TRIES + 1)]
        values = [value for value in replayer.values(states, 1) if value is not None]
    for i, value in enumerate(values[:-1]):
        assert value.replays == 800
        assert value.won == pytest.approx(won_from(i), abs=4 * math.sqrt(value.variance))
    assert values[-1] == Value(0.0, 0)
    gain, error = advantage(values[2], values[3])
    assert gain == pytest.approx(won_from(3) - won_from(2), abs=4 * error)
    assert 0 < error < 0.05


def test_a_state_is_measured_once_however_often_it_is_met(guess: Domain) -> None:
    ended: list[int] = []
    with EnvironmentPool(guess, {}, 0, math.inf) as environments:
        rollouts = played(guess, environments, 6)
        replayer = Replayer(RandomAgent(guess), environments, 5, TRIES)
        values = replayer.values([(one, 0) for one in rollouts], 1, ended.append)
    assert sum(ended) == 5
    assert len(set(values)) == 1


def judged(trajectory: Trajectory, scores: list[list[int]]) -> JudgedTrajectory:
    rows = [tuple(Judgement(Completion.unsampled(""), s) for s in step) for step in scores]
    return JudgedTrajectory(trajectory, tuple(rows))


def test_the_most_disputed_steps_of_tasks_in_the_window_are_chosen(guess: Domain) -> None:
    with EnvironmentPool(guess, {}, 0, math.inf) as environments:
        lost = next(t for t in played(guess, environments, 20) if t.outcome == -1)
    won = replace(lost, outcome=1)
    always = replace(won, task=replace(lost.task, id="easy"))
    even, odd, agreed = [1, -1], [1, 1, -1], [1, 1]
    group = [
        judged(lost, [agreed, odd, even, even]),
        judged(won, [even, [1, 0], [-1], agreed]),
        judged(always, [even] * 4),
    ]
    assert disputed(group, (0.2, 0.8), 99, 0)[-1] == (0, 1)
    assert set(disputed(group, (0.2, 0.8), 3, 0)) == {(0, 2), (0, 3), (1, 0)}
    firsts = {disputed(group, (0.2, 0.8), 1, seed)[0] for seed in range(20)}
    assert firsts == {(0, 2), (0, 3), (1, 0)}


def test_a_judge_is_taught_by_gains_and_not_by_who_won() -> None:
    scores, gains = [[[1, -1, -1], [1, -1, 0], [1, -1, 1]]], [[0.5, -1.0, 0.0]]
    [[up, down, unknown]] = task_signals([-1], scores, MEASURED, gains=gains).judges["judge"]
    assert up == pytest.approx(0.5 * np.array([math.sqrt(2), -1 / math.sqrt(2), -1 / math.sqrt(2)]))
    assert down[1] > 0 > down[0] > down[2]
    assert unknown.tolist() == [0, 0, 0]


def test_gains_must_be_there() -> None:
    with pytest.raises(PluginError, match="reward replays needs gains, and there are none"):
        task_signals([1], [[[1, -1]]], MEASURED)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"loop": {"max_staleness": 1}, "environment": {"lockstep": False}},
            "loop.max_staleness: replays plays episodes again",
        ),
        ({"roles": {"a": {"does": "acts"}, "b": {"does": "acts"}}}, "a single role that acts"),
    ],
)
def test_runs_that_cannot_replay_are_refused(changes: dict[str, object], said: str) -> None:
    mine = {"name": "mine", "domain": {"name": "text"}, "feedback": {"judge_reward": "replays"}}
    recipe = load_recipe(mine | changes)
    with pytest.raises(RecipeError, match=said):
        check_values(recipe)


def test_a_run_measures_disputed_steps_and_trains_on_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, parallel = EnvironmentPool.begin, set[int]()

    def beginning(pool: EnvironmentPool, tasks: list[Task], together: int) -> range:
        parallel.add(together)
        return begin(pool, tasks, together)

    monkeypatch.setattr(EnvironmentPool, "begin", beginning)
    reward = "feedback.judge_reward={name: replays, options: {steps: 3, replays: 2}}"
    wide = ("feedback.judge_window=[0, 1]", "loop.tasks_per_iteration=4", "judge.temperature=1.5")
    wide = (*wide, "environment.parallel_episodes=2")
    run = train_once(tmp_path / "run", reward, *wide, "loop.rollouts_per_task=4")
    with closing(Store(run / "run.sqlite")) as store:
        metrics = dict(store.query("SELECT name, value FROM metrics WHERE iteration = 1"))
        trained = store.query(
            "SELECT COUNT(DISTINCT trajectory || '/' || step) FROM judgements WHERE advantage != 0"
        )
    assert metrics["replays/measured"] == 3
    assert 0 < metrics["replays/steps"] <= 3 * 2 * 2 * 8
    assert next(iter(trained))[0] == metrics["replays/changed"]
    assert parallel == {2}
