"""`rlanything data`: task files, made from published data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlanything.files import new_folder
from rlanything.plugins import load_plugin
from rlanything.progress import Progress
from rlanything.terminal import Terminal, write_line

app = typer.Typer(no_args_is_help=True, help="Files of tasks, made from published data.")


@app.command()
def prepare(
    domain: Annotated[str, typer.Argument(help="The tasks' domain: coding.")],
    files: Annotated[list[Path], typer.Argument(help="Published files, as downloaded.")],
    out: Annotated[Path, typer.Option(help="The folder to write; it must not exist.")],
    use: Annotated[
        Literal["train", "evaluation", "both"] | None,
        typer.Option(help="Left out: train for NAME_train, otherwise evaluation."),
    ] = None,
) -> None:
    """Turn published data into files that a domain's `data` option names."""
    from rlanything.domains.base import Domain, DomainError

    maker = load_plugin("domain", domain)
    if getattr(maker, "prepare", Domain.prepare) is Domain.prepare:
        raise DomainError(f"domain {domain} has no data to prepare: name another, such as coding")
    if out.exists():
        raise DomainError(f"{out} exists already: name a new folder with --out")
    progress = Progress(Terminal(stderr=True))
    lines: list[str] = []
    try:
        with new_folder(out) as folder, progress.live():
            for file in files:
                size = file.stat().st_size if file.is_file() else 0
                with progress.bytes_phase(file.name) as show:
                    lines += maker.prepare(file, folder, use, lambda done, of=size: show(done, of))
    except OSError as fault:
        raise DomainError(
            f"{out}: {fault.strerror or fault}: name a new folder with --out"
        ) from fault
    for line in lines:
        for part in f"{out}/{line}".splitlines():
            write_line(part)
