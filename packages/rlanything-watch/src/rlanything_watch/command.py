"""`rlanything watch`: shows runs in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


class WatchError(ValueError):
    """Runs cannot be shown here; the message is one line with the remedy."""


def watch(
    runs: Annotated[list[Path], typer.Argument(help="A run directory; several are compared.")],
) -> None:
    """Watch runs in the terminal: curves, episodes with the judge's words, tasks, warnings, speed.
    Works while they train and after, over ssh, and changes nothing."""
    from rlanything_watch.app import WatchApp
    from rlanything_watch.source import RunSource

    sources = [RunSource(run) for run in runs]
    for source in sources:
        source.check()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise WatchError("watch needs a terminal; `rlanything report RUN` writes a page instead")
    # Without mouse reports the terminal can select and copy text as usual.
    WatchApp(sources).run(mouse=False)
