"""`rlanything nano`: the tiny models that ship with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlanything.progress import Progress
from rlanything.terminal import Terminal

app = typer.Typer(no_args_is_help=True, help="The tiny models that ship with the package.")


@app.command()
def build(
    out: Annotated[Path, typer.Option(help="Folder to write the three models to.")],
    domain: Annotated[str, typer.Option(help="The domain that they are trained for.")] = "alfworld",
    seed: Annotated[int, typer.Option(help="All random choices derive from it.")] = 0,
    workers: Annotated[int, typer.Option(min=0, help="Environment processes.")] = 2,
    role: Annotated[
        list[str] | None,
        typer.Option(help="Only policy, judge or adapter; the others are read from OUT."),
    ] = None,
) -> None:
    """Build policy, judge and adapter from a seed, and measure what they can do."""
    from rlanything.nano.making import roles_named
    from rlanything.nano.plans import build as build_models

    progress = Progress(Terminal())
    build_models(domain, seed, out, workers, progress, roles_named(role or (), out))
    progress.log(f"written to {out}; measurements are in {out / 'card.json'}")
