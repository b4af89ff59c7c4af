"""`rlanything tasks`: shows a run's slots and the history of their tasks."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from rlanything.terminal import show, write_json


def tasks(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show a run's slots: their tasks, lineage, accuracies and critics."""
    from rlanything.runs.lineage import lineage_table, read_lineage
    from rlanything.runs.store.store import Store

    with closing(Store(run / "run.sqlite")) as store:
        store.check_values()
        slots = read_lineage(store)
        with store.understanding():
            table = lineage_table(slots)
    if as_json:
        write_json({"slots": slots})
    else:
        show(table)
