"""`rlanything eval`: success of a run, a model, the expert or a random player."""

from __future__ import annotations

from typing import Annotated

import typer

from rlanything.commands.train import ALLOW_CODE
from rlanything.progress import Progress
from rlanything.terminal import Terminal, show, write_json

ROLE = Annotated[
    str | None, typer.Option(help="Name of the judge, in a recipe or run that has several.")
]


def evaluate_target(
    target: Annotated[
        str,
        typer.Argument(
            help="A run directory, a recipe (its policy before training), a model "
            "(folder, id or nano), expert or random."
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="section.key=value, e.g. policy.engine.name=vllm policy.device=cuda"),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Which held-out tasks.", show_default="in_domain")
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Episodes, one for each task; by default 240, or a published list's whole.",
        ),
    ] = None,
    domain: Annotated[
        str | None,
        typer.Option(
            help="A domain by name or module:Class; a run, a recipe and a shipped model have one."
        ),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Step limit; a run's or recipe's, else 40.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help="Sampling temperature; a run's or recipe's, else 1."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice of tasks and of sampling.")] = 1,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Environment processes; a run's or recipe's, else 2.")
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD-N",
            help="N attempts per task, of which the judge of a run or recipe chooses one: "
            "best-of-8; for programs also mpsc-8, alphacodium-8 or s-star-8.",
        ),
    ] = None,
    accepted_of: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Play the rewritten tasks that this run accepted, in place of held-out ones.",
        ),
    ] = None,
    rollouts: Annotated[int, typer.Option(min=1, help="Attempts at each task.")] = 1,
    role: ROLE = None,
    allow_code: ALLOW_CODE = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure success on held-out tasks, with its 95% interval."""
    from rlanything.runs.eval_target import EvalArgs, run_eval, selection_rule

    request = EvalArgs(
        target,
        split,
        episodes,
        domain,
        max_steps,
        temperature,
        seed,
        workers,
        overrides or [],
        selection_rule(select) if select else None,
        allow_code,
        role,
        accepted_of,
        rollouts,
    )
    progress = Progress(Terminal(stderr=True))
    result = run_eval(request, progress)
    if as_json:
        write_json(result.to_json())
    else:
        show(result.table())
