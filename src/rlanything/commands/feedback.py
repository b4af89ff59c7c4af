"""`rlanything feedback`: step-wise training signals for rollouts from any framework."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlanything.algorithm.feedback import (
    Balance,
    FeedbackSettings,
    Normalization,
    PolicyReward,
)
from rlanything.config.sections import FeedbackConfig
from rlanything.progress import Progress
from rlanything.terminal import Terminal

_DEFAULT = FeedbackConfig().settings()
"""The defaults of recipes; steps are compared by their index, as lines tell no states."""
WIN_AT = Annotated[
    float | None, typer.Option(help="An episode is won whose `reward` is so much or more.")
]


def feedback(
    rollouts: Annotated[
        Path, typer.Argument(help="JSONL, one trajectory per line; .gz, or - for stdin.")
    ],
    out: Annotated[Path, typer.Option(help="File to write the signals to; .gz, or - for stdout.")],
    win_at: WIN_AT = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
    policy_lambda: Annotated[
        float, typer.Option(min=0, help="lambda of Eq. 1, for both roles.")
    ] = _DEFAULT.policy_lambda,
    judge_lambda: Annotated[
        float | None, typer.Option(min=0, help="lambda for the judge, if different.")
    ] = None,
    policy_reward: Annotated[
        PolicyReward,
        typer.Option(help="What the policy learns from: Eq. 1, or one of its two terms alone."),
    ] = _DEFAULT.policy_reward,
    policy_comparison: Annotated[
        Literal["step", "trajectory"],
        typer.Option(help="Compare a step with those of the same index, or with all of its task."),
    ] = "step",
    policy_window: Annotated[
        tuple[float, float],
        typer.Option(metavar="LOW HIGH", help="Accuracies on which the policy trains."),
    ] = _DEFAULT.policy_window,
    judge_window: Annotated[
        tuple[float, float],
        typer.Option(metavar="LOW HIGH", help="Accuracies on which the judge trains."),
    ] = _DEFAULT.judge_window,
    judge_normalization: Annotated[
        Normalization,
        typer.Option(help="Compare a judgement with those of its step or its task."),
    ] = _DEFAULT.judge_normalization,
    judge_balance: Annotated[
        Balance,
        typer.Option(
            help="outcome: steps of won and of lost episodes weigh the same for the judge; none: "
            "every step counts alike (the paper)."
        ),
    ] = _DEFAULT.judge_balance,
) -> None:
    """Compute step-wise training signals for rollouts from any framework.

    Input lines: {"task", "trajectory", "outcome": 1|-1, "steps": [{"scores": [1, -1, 0]}, ...]}.
    Output lines, in the same order: {"task", "trajectory", "accuracy", "policy", "judge"}, null
    where a sample does not train. Memory: one byte per score and per step, and about 300 bytes per
    trajectory.
    """
    from rlanything.rollout.signals import write_signals

    settings = FeedbackSettings(
        policy_lambda=policy_lambda,
        judge_lambda=policy_lambda if judge_lambda is None else judge_lambda,
        policy_reward=policy_reward,
        policy_comparison=policy_comparison,
        policy_window=policy_window,
        judge_window=judge_window,
        judge_normalization=judge_normalization,
        judge_balance=judge_balance,
    )
    progress = Progress(Terminal(stderr=True))
    with progress.live(), progress.bytes_phase("signals") as advance:
        summary = write_signals(rollouts, out, settings, advance, overwrite=force, win_at=win_at)
    progress.log(
        f"{out}: {summary.trajectories} trajectories of {summary.tasks} tasks; "
        f"{summary.policy_samples} of {summary.steps} steps train the policy, "
        f"{summary.judge_samples} of {summary.judgements} judgements train the judge"
    )
    if summary.single_trajectory_tasks:
        progress.log(
            f"tasks with one trajectory: {summary.single_trajectory_tasks}; nothing to compare it "
            "with, so it trains nothing; roll out each task several times"
        )
