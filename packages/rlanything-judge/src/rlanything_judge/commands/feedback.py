"""`rlanything feedback`: step-wise training signals for rollouts from any framework."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlanything.progress import Progress
from rlanything.terminal import Terminal

WIN_AT = Annotated[
    float | None, typer.Option(help="Smallest `reward` of an episode that counts as won.")
]

FORMAT = Annotated[
    str,
    typer.Option(
        "--format",
        help="Program that wrote the rollouts, as in the table of rlanything-judge's README; auto: "
        "recognised by its keys.",
    ),
]
REWARD = Annotated[
    list[str] | None,
    typer.Option(
        help="Key of the reward, or KEY=WEIGHT (repeatable); or a number that each rollout earned."
    ),
]


def feedback(
    rollouts: Annotated[
        Path, typer.Argument(help="Rollouts: JSON or JSONL, in any --format; .gz, or - for stdin.")
    ],
    out: Annotated[Path, typer.Option(help="File to write the signals to; .gz, or - for stdout.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Keys of a recipe's section `feedback`: policy_lambda=0.5 advantage=trajectory.",
        ),
    ] = None,
    win_at: WIN_AT = None,
    line_format: FORMAT = "auto",
    reward: REWARD = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
) -> None:
    """Compute step-wise training signals for rollouts from any framework.

    Input lines: {"task", "trajectory", "outcome": 1|-1, "steps": [{"scores": [1, -1, 0]}, ...]}.
    Output lines, in the same order: {"task", "trajectory", "accuracy", "policy", "judge"}, null
    where a sample does not train. Rollouts of other programs are read as `rlanything judge` reads
    them: without scores, the outcome alone counts. Settings are those of a recipe, which
    docs/recipes.md lists, with the same defaults. Memory: one byte per score and per step, and
    about 300 bytes per trajectory.
    """
    from rlanything.config.recipe import load_recipe
    from rlanything.runs.refusals import check_values
    from rlanything_judge.rollouts.lines import open_format
    from rlanything_judge.rollouts.signals import write_signals

    overrides = [f"feedback.{setting}" for setting in settings or ()]
    recipe = load_recipe({"name": "feedback", "domain": {"name": "text"}}, overrides)
    check_values(recipe)
    progress = Progress(Terminal(stderr=True))
    with progress.live(), progress.bytes_phase("signals") as advance:
        read_as = open_format(line_format, reward or ())
        summary = write_signals(
            rollouts,
            out,
            recipe.feedback,
            advance,
            overwrite=force,
            win_at=win_at,
            line_format=read_as,
        )
    if read_as.foreign:
        progress.warn(
            f"{rollouts}: {read_as.describe(summary.trajectories)}; not judged, so each step "
            "counts by the outcome alone: run rlanything judge first for step-wise signals"
        )
    tasks = "1 task" if summary.tasks == 1 else f"{summary.tasks} tasks"
    progress.log(
        f"{out}: {summary.trajectories} trajectories of {tasks}; "
        f"{summary.policy_samples} of {summary.steps} steps train the policy, "
        f"{summary.judge_samples} of {summary.judgements} judgements train the judge"
    )
    if judged := summary.judge_line():
        progress.log(judged)
    if summary.policy_lambda is not None:
        progress.log(f"lambda of Eq. 1: {summary.policy_lambda:.3g}, measured over all tasks")
    if summary.single_trajectory_tasks:
        progress.log(
            f"tasks with one trajectory: {summary.single_trajectory_tasks}; nothing to compare it "
            "with, so it trains nothing; roll out each task several times"
        )
