"""The judge that compares the policy with itself before training."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.guess import FEW, GUESS
from rlanything import Trainer
from rlanything_lab.progress import ProgressJudge


def test_it_scores_what_training_has_made_more_likely(tmp_path: Path) -> None:
    judge = {"name": "progress", "options": {"before": "nano-guess"}}
    trainer = Trainer(
        GUESS, overrides=[*FEW, f"run_dir={tmp_path / 'run'}", f"judge={judge}"], allow_code=True
    )
    first, second = (
        [
            (judgement.score, step.completion)
            for group in record.groups
            for episode in group.judged
            for step, [judgement] in zip(episode.trajectory.steps, episode.judgements, strict=True)
        ]
        for record in trainer
    )
    assert first
    assert {score for score, _ in first} == {0}
    assert {score for score, _ in second} >= {-1, 1}
    ratios = ProgressJudge("nano-guess").log_ratios([completion for _, completion in second])
    for (score, _), ratio in zip(second, ratios, strict=True):
        assert score * ratio > 0 or abs(ratio) < 1e-3


def test_at_the_wrong_temperature_the_same_policy_looks_changed(tmp_path: Path) -> None:
    trainer = Trainer(GUESS, overrides=[*FEW, "loop.iterations=1", f"run_dir={tmp_path / 'run'}"])
    [record] = list(trainer)
    responses = [
        step.completion
        for group in record.groups
        for episode in group.judged
        for step in episode.trajectory.steps
    ]
    assert ProgressJudge("nano-guess").log_ratios(responses) == pytest.approx(
        [0.0] * len(responses), abs=1e-3
    )
    assert max(map(abs, ProgressJudge("nano-guess", 0.5).log_ratios(responses))) > 0.1
