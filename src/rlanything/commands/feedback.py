"""`rlanything feedback`: step-wise training signals for rollouts from any framework."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlanything.progress import Progress
from rlanything.terminal import Terminal

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
    ] = 1.0,
    judge_lambda: Annotated[
        float | None, typer.Option(min=0, help="lambda for the judge, if different.")
    ] = None,
    policy_reward: Annotated[
        Literal["integrated", "outcome", "judge"],
        typer.Option(help="What the policy learns from: Eq. 1, or one of its two terms alone."),
    ] = "integrated",
    policy_comparison: Annotated[
        Literal["step", "trajectory"],
        typer.Option(help="Compare a step with those of the same index, or with all of its task."),
    ] = "step",
    policy_window: Annotated[
        tuple[float, float],
        typer.Option(metavar="LOW HIGH", help="Accuracies on which the policy trains."),
    ] = (1 / 8, 7 / 8),
    judge_window: Annotated[
        tuple[float, float],
        typer.Option(metavar="LOW HIGH", help="Accuracies on which the judge trains."),
    ] = (0.2, 0.8),
    judge_normalization: Annotated[
        Literal["step", "task"],
        typer.Option(help="Compare a judgement with those of its step or its task."),
    ] = "step",
    judge_balance: Annotated[
        Literal["none", "outcome"],
        typer.Option(
            help="outcome: steps of won and of lost episodes weigh the same for the judge; none: "
            "every step counts alike (the paper)."
        ),
    ] = "outcome",
    unreadable: Annotated[
        Literal["missing", "zero"],
        typer.Option(
            help="Scores of 0 do not count in the mean score of their step (missing), or count as "
            "0 (zero, the paper)."
        ),
    ] = "missing",
) -> None:
    """Compute step-wise training signals for rollouts from any framework.

    Input lines: {"task", "trajectory", "outcome": 1|-1, "steps": [{"scores": [1, -1, 0]}, ...]}.
    Output lines, in the same order: {"task", "trajectory", "accuracy", "policy", "judge"}, null
    where a sample does not train. Memory: one byte per score and per step, and about 300 bytes per
    trajectory.
    """
    from rlanything.algorithm.feedback import FeedbackSettings
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
        unreadable=unreadable,
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
