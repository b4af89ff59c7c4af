"""`rlanything gradients`: do the gradients of a run pull in the same direction?"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from rlanything.commands.train import ALLOW_CODE
from rlanything.progress import Progress
from rlanything.terminal import Terminal, write, write_json


def gradients(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    rollouts: Annotated[
        int, typer.Option(min=2, help="Fresh rollouts in each iteration, judged as in the run.")
    ] = 1000,
    page: Annotated[Path | None, typer.Option(help="Markdown file for the tables.")] = None,
    allow_code: ALLOW_CODE = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Compare the gradients that pull on each role, iteration by iteration, on fresh rollouts.

    Compared are the outcome's and the judge's term of Eq. 1, original and adapted tasks, and
    consecutive iterations. Train with checkpoints.every=1, so that all weights are there.
    """
    from rlanything_lab.gradients.measure import measure
    from rlanything_lab.gradients.table import table
    from rlanything_lab.rewrite_check.check import write_page

    progress = Progress(Terminal(stderr=True))
    measured = [measure(run, rollouts, allow_code, progress) for run in runs]
    if page is not None:
        write_page(page, table(measured), shlex.join(["rlanything", *sys.argv[1:]]))
    if as_json:
        write_json({"runs": [run.to_json() for run in measured]})
    else:
        write("\n".join([*table(measured), ""]))
