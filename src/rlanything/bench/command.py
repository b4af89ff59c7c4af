"""`rlanything bench learner`, as the command line has it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rlanything.progress import Progress


def learner(
    recipe: Annotated[Path, typer.Argument(help="Whose first iteration is measured.")] = Path(
        "recipes/quickstart.yaml"
    ),
    overrides: Annotated[
        list[str] | None, typer.Argument(help="section.key=value, as for train")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Two tasks, one round, under a minute.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write a page of Markdown there.")] = None,
) -> None:
    """Time an update with shared beginnings against separate sequences, and against TRL's.

    TRL takes part where it is installed: pip install 'rlanything[bench]'.
    """
    from rlanything.bench import report
    from rlanything.bench.learner import bench_learner as measure
    from rlanything.config.recipe import load_recipe

    progress = Progress(Console(stderr=True))
    with progress.live():
        result = measure(load_recipe(recipe, overrides or []), quick, progress)
    if out is not None:
        command = " ".join(["rlanything", *sys.argv[1:]])
        out.write_text(report.page(result, command), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(result.to_json()))
    else:
        Console().print(report.table(result))
