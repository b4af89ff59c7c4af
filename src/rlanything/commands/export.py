"""`rlanything export`: a run's tables as files for pandas and `datasets`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlanything.progress import Progress
from rlanything.terminal import Terminal, write_line


def export(
    run: Annotated[Path, typer.Argument(help="A run directory; the run may be in progress.")],
    out: Annotated[Path, typer.Option(help="The folder to write; it must not exist.")],
    form: Annotated[
        Literal["jsonl", "parquet"],
        typer.Option("--format", help="JSON lines, or Parquet (extra: export)."),
    ] = "jsonl",
) -> None:
    """Write a run's metrics, evaluations, tasks and trajectories as files, one each."""
    from rlanything.runs.export import export_run
    from rlanything.runs.open import open_run

    recorded = open_run(run)
    progress = Progress(Terminal(stderr=True))
    episodes = recorded.trajectory_count()
    with progress.live(), progress.phase("export", episodes, "trajectories") as advance:
        counts = export_run(recorded, out, form, advance)
    write_line(f"{out}: {', '.join(f'{count} {name}' for name, count in counts.items())}")
