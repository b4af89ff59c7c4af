"""`rlanything judge-check`: does a run's judge notice corrupted steps?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rlanything.progress import Progress


def judge_check(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    episodes: Annotated[int, typer.Option(min=1, help="Steps are drawn from this many.")] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Corrupt recorded steps and count how often the judge notices, before and after training."""
    from rlanything.studies.judge_check.run_check import check_judge

    result = check_judge(run, episodes, Progress(Console(stderr=True)))
    if as_json:
        typer.echo(json.dumps(result.to_json()))
    else:
        Console().print(result.table())
