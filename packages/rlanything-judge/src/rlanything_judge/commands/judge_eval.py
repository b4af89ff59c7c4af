"""`rlanything judge-eval`: evaluates any judge on the stored trajectories of any run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlanything.commands.eval import ROLE
from rlanything.commands.train import ALLOW_CODE
from rlanything.progress import Progress
from rlanything.terminal import Terminal, show, write_json


def judge_eval(
    judge: Annotated[
        str,
        typer.Argument(
            help="A run directory (its trained judge), a recipe (its judge before training), a "
            "checkpoint folder, or a model (folder, id or nano)."
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="section.key=value of the judge's recipe, e.g. judge.samples_per_step=8; for "
            "labellers: evaluation.labeller.key=value."
        ),
    ] = None,
    trajectories: Annotated[
        Path | None, typer.Option(help="The run whose trajectories are judged; default: JUDGE.")
    ] = None,
    iteration: Annotated[
        int | None,
        typer.Option(min=1, help="Rollouts of this iteration; default: held-out episodes."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Held-out episodes of one split only.")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Largest number of random episodes.")] = 96,
    labeller: Annotated[
        list[str] | None,
        typer.Option(help="recorded (default), oracle, or a model (majority). Repeatable."),
    ] = None,
    role: ROLE = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw and of sampling.")] = 0,
    allow_code: ALLOW_CODE = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure Process Acc and Outcome Acc of a judge on a run's trajectories, read only."""
    from rlanything_judge.stored import JudgeEvalArgs, run_judge_eval

    request = JudgeEvalArgs(
        judge,
        Path(judge) if trajectories is None else trajectories,
        overrides or [],
        iteration,
        split,
        episodes,
        labeller or [],
        seed,
        allow_code,
        role,
    )
    result = run_judge_eval(request, Progress(Terminal(stderr=True)))
    if as_json:
        write_json(result.to_json())
    else:
        show(result.table())
