"""The judge that measures by replays, and the policy that learns from it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.guess import FEW, GUESS, ONE
from helpers.paths import ROOT
from rlanything import Trainer
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.domains.base import Domain, EpisodeError
from rlanything.domains.registry import load_domain
from rlanything.records import Task, Trajectory
from rlanything.roles.baselines import RandomAgent
from rlanything.roles.judges.base import JudgeError
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.replays import Replayer
from rlanything.rollout.workers import EnvironmentPool
from rlanything_lab.replays import ReplayJudge

TRIES = 4


@pytest.fixture(scope="module")
def guess() -> Iterator[Domain]:
    sys.path.insert(0, str(ROOT / "examples"))
    yield load_domain("guess:Guess", {})
    sys.path.remove(str(ROOT / "examples"))


def played(domain: Domain, environments: EnvironmentPool, count: int) -> tuple[Trajectory, ...]:
    task = Task("t", "Guess.", data={"secret": 3, "tries": TRIES})
    requests = [RolloutRequest(f"t/{i}", task, i) for i in range(count)]
    return rollout(RandomAgent(domain), environments, requests, TRIES, 8).trajectories


def lose_all(pool: EnvironmentPool) -> dict[int, EpisodeError]:
    return dict.fromkeys(range(pool._begun), EpisodeError("t", "gone"))


def test_what_cannot_be_played_again_has_no_value(
    guess: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EnvironmentPool(guess, {}, 0, math.inf) as environments:
        [one] = played(guess, environments, 1)
        replayer = Replayer(RandomAgent(guess), environments, 2, TRIES)
        judge = ReplayJudge(RandomAgent(guess), guess, 2, TRIES)
        monkeypatch.setattr(EnvironmentPool, "collect", lose_all)
        assert replayer.values([(one, 0)], 1) == [None]
        with pytest.raises(JudgeError, match="t/0 cannot be played again"):
            judge.judge([one], 1)


def test_the_measured_gains_train_the_policy(guess: Domain) -> None:
    with EnvironmentPool(guess, {}, 0, math.inf) as environments:
        rollouts = played(guess, environments, 8)
    judge = ReplayJudge(RandomAgent(guess), guess, 30, TRIES)
    judged = judge.judge(rollouts, 1)
    signals = judge.signals(judged, FeedbackSettings(policy_window=(0, 1)))
    for one, steps in zip(judged, signals.policy, strict=True):
        [score] = one.judgements[-1]
        won = one.trajectory.outcome == 1
        assert score.score == (1 if won else -1)
        assert math.copysign(1, float(steps[-1])) == score.score
        assert score.completion.text.endswith("-> 1.00" if won else "-> 0.00")
    ratio = float(signals.policy[0][-1]) / float(signals.policy[1][-1])
    assert math.isfinite(ratio)


def test_a_recipe_can_name_the_judge_that_measures(tmp_path: Path) -> None:
    trainer = Trainer(
        GUESS,
        overrides=[
            *FEW,
            *ONE,
            f"run_dir={tmp_path / 'run'}",
            "judge.name=replays",
            "judge.options={replays: 2, max_steps: 4}",
        ],
        allow_code=True,
    )
    [record] = list(trainer)
    texts = [
        judgement.completion.text
        for group in record.groups
        for episode in group.judged
        for step in episode.judgements
        for judgement in step
    ]
    assert texts
    assert all(text.startswith("V ") for text in texts)


def test_no_replays_measure_nothing(guess: Domain) -> None:
    with pytest.raises(JudgeError, match="at least once"):
        ReplayJudge(RandomAgent(guess), guess, 0, TRIES)
