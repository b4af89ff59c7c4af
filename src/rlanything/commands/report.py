"""`rlanything report`: writes an HTML report on one run or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlanything.progress import Progress
from rlanything.terminal import Terminal, write_line


def report(
    runs: Annotated[list[Path], typer.Argument(help="A run directory; several are compared.")],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; default: RUN/report.html, or comparison.html here."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write a run's report as one HTML file, even while it trains; or compare several runs."""
    import webbrowser

    from rlanything.runs.report.writing import COMPARISON, NAME, write_report

    out = out or (runs[0] / NAME if len(runs) == 1 else Path(COMPARISON))
    with Progress(Terminal(stderr=True)).phase("report", len(runs), "runs"):
        write_report(runs, out)
    write_line(str(out))
    if open_it:
        webbrowser.open(out.resolve().as_uri())
