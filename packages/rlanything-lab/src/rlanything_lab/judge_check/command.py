"""`rlanything judge-check`: does a run's judge notice corrupted steps?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlanything.commands.eval import ROLE
from rlanything.commands.train import ALLOW_CODE
from rlanything.progress import Progress
from rlanything.terminal import Terminal, show, write_json


def judge_check(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes to draw from.")] = 32,
    role: ROLE = None,
    allow_code: ALLOW_CODE = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Corrupt recorded steps and count how often the judge notices, before and after training."""
    from rlanything_lab.judge_check.run_check import check_judge

    progress = Progress(Terminal(stderr=True))
    result = check_judge(run, episodes, progress, allow_code=allow_code, role=role)
    if as_json:
        write_json(result.to_json())
    else:
        show(result.table())
