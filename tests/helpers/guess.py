"""The game of `examples/guess.py` in a loop that takes seconds."""

from __future__ import annotations

from helpers.paths import ROOT

GUESS = ROOT / "examples" / "guess.yaml"
FEW = (
    *("loop.iterations=2", "loop.tasks=16", "loop.tasks_per_iteration=4"),
    *("loop.rollouts_per_task=4", "policy.minibatches=2", "judge.minibatches=1"),
    *("evaluation.episodes=8", "evaluation.judged_episodes=4"),
    "evaluation.splits=[in_domain, ood]",
)
"""Overrides of that recipe: two iterations of four tasks."""
