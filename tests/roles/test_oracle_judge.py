"""The judge that knows: right as often as it is told to be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from rich.console import Console

from helpers.guess import FEW, GUESS
from helpers.scripted import Counting, trajectory
from rlanything.config.recipe import load_recipe
from rlanything.config.roles import JudgeConfig
from rlanything.domains.base import DomainError
from rlanything.progress import Progress
from rlanything.records import Step, Task, Trajectory
from rlanything.roles.chat_model import ChatModel
from rlanything.roles.judges.base import JudgeError
from rlanything.roles.judges.oracle import OracleJudge
from rlanything.runs.build import build_judge
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer


class Alternating(Counting):
    """Every other step is right."""

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int]:
        return [1 if i % 2 == 0 else -1 for i in range(len(steps))]


class Unlabelled(Counting):
    def oracle(self, task: Task, steps: Sequence[Step]) -> None:
        return None


def long_trajectories() -> list[Trajectory]:
    return [trajectory(f"1/t/{g}", 40) for g in range(20)]


def scores(noise: float, seed: int = 0) -> np.ndarray:
    """[trajectories, steps, m]"""
    judged = OracleJudge(Alternating(), 3, noise).judge(long_trajectories(), seed)
    return np.array([each.scores for each in judged])


def test_without_noise_every_score_is_the_label():
    assert (scores(0.0)[:, 0::2] == 1).all()
    assert (scores(0.0)[:, 1::2] == -1).all()


def test_noise_is_the_share_of_wrong_scores_drawn_for_each_judgement():
    wrong = scores(0.28) != scores(0.0)
    # 2,400 draws: a standard error of 0.009.
    assert wrong.mean() == pytest.approx(0.28, abs=0.04)
    assert wrong.any(axis=-1).mean() == pytest.approx(1 - 0.72**3, abs=0.08)


def test_scores_depend_on_the_seed_and_the_trajectory_only():
    assert (scores(0.28) == scores(0.28)).all()
    assert (scores(0.28) != scores(0.28, seed=1)).any()
    [alone] = OracleJudge(Alternating(), 3, 0.28).judge(long_trajectories()[3:4], 0)
    assert (np.array(alone.scores) == scores(0.28)[3]).all()


def test_a_domain_without_labels_is_named():
    with pytest.raises(DomainError, match="no step labels"):
        OracleJudge(Unlabelled(), 1).judge(long_trajectories()[:1], 0)


def test_a_run_with_the_oracle_trains_the_policy_and_has_no_judge_to_keep(tmp_path):
    settings = [
        "judge.name=oracle",
        "judge.options.noise=0.28",
        "loop.iterations=1",
        *("loop.tasks_per_iteration=2", "evaluation.episodes=2", "evaluation.judged_episodes=2"),
    ]
    recipe = load_recipe(GUESS, [*FEW, f"run_dir={tmp_path / 'run'}", *settings])
    Trainer(recipe, progress=Progress(Console(quiet=True))).train()
    [checkpoint] = (tmp_path / "run" / "checkpoints").iterdir()
    assert {each.name for each in checkpoint.iterdir()} == {"policy", "pool.json", "manifest.json"}
    store = Store(tmp_path / "run" / "run.sqlite")
    assert store.query("SELECT COUNT(*) FROM judgements WHERE score != 0")[0][0] > 0
    metrics = dict(store.query("SELECT name, value FROM metrics WHERE iteration = 1"))
    assert metrics["policy/samples"] > 0
    assert not any(name.startswith("judge/grad") for name in metrics)
    store.close()


@pytest.mark.parametrize("noise", [2, -0.1, "much"])
def test_a_noise_that_is_no_share_is_one_line(noise):
    config = JudgeConfig(name="oracle", options={"noise": noise})
    with pytest.raises(JudgeError, match=r"judge\.options\.noise is .*: give a number from 0 to 1"):
        build_judge(config, Alternating(), unasked)


def test_an_option_that_no_judge_has_names_those_it_has():
    config = JudgeConfig(name="oracle", options={"nose": 0.1})
    with pytest.raises(JudgeError, match="its options are: noise"):
        build_judge(config, Alternating(), unasked)


def unasked() -> ChatModel:
    raise AssertionError("an oracle needs no model")
