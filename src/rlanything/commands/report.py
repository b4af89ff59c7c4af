"""`rlanything report`: one HTML file about a run, or about several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rlanything.progress import Progress


def report(
    runs: Annotated[list[Path], typer.Argument(help="A run directory; several are compared.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Where it goes: RUN/report.html, or comparison.html here, if left out."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Write a run's report, one HTML file, from whatever its store holds; or compare runs."""
    import webbrowser

    from rlanything.runs.report.writing import COMPARISON, NAME, write_report

    out = out or (runs[0] / NAME if len(runs) == 1 else Path(COMPARISON))
    with Progress(Console(stderr=True)).phase("report", len(runs), "runs"):
        write_report(runs, out)
    typer.echo(out)
    if open_it:
        webbrowser.open(out.resolve().as_uri())
