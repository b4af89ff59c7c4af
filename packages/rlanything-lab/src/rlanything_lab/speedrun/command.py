"""`rlanything speedrun`: trains the board's task on a budget, and checks entries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rlanything.commands.train import ALLOW_CODE
from rlanything.progress import Progress
from rlanything.terminal import Terminal, write_line

RUN = "run"


class _RunsByDefault(TyperGroup):
    """A group whose command `run` need not be named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "--help"):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunsByDefault,
    add_completion=False,
    help="Train the board's task on a fixed budget and write an entry (docs/speedrun.md).",
)


@app.command(RUN)
def run(
    changes: Annotated[
        list[str] | None,
        typer.Argument(help="section.key=value: what you change of the board's recipe."),
    ] = None,
    name: Annotated[
        str, typer.Option(help="Author and idea in a few words, for the board.")
    ] = "unnamed",
    out: Annotated[
        Path, typer.Option(help="Folder of the runs; finished seeds in it are kept.")
    ] = Path("runs/speedrun"),
    key: Annotated[Path | None, typer.Option(help="SSH key that signs the entry.")] = None,
    cpu_seconds: Annotated[
        float | None, typer.Option(min=1, help="A trial with another budget, not for the board.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="A trial with this many seeds, not for the board.")
    ] = None,
) -> None:
    """Train every seed within the budget, play the held-out games and write OUT/entry.json.

    The default command: `rlanything speedrun policy.learning_rate=5e-4` runs it.
    """
    from rlanything_lab.speedrun import challenge
    from rlanything_lab.speedrun.speedrun import SpeedrunRequest, speedrun
    from rlanything_lab.speedrun.table import table

    other: dict[str, Any] = {"cpu_seconds": cpu_seconds} if cpu_seconds else {}
    if seeds:
        other["seeds"] = tuple(range(seeds))
    task = challenge.BOARD.model_copy(update=other)
    request = SpeedrunRequest(task, changes or [], name, out, key)
    entry = speedrun(request, Progress(Terminal(stderr=True)))
    write_line(f"written: {request.entry}, {entry.sha256[:12]}")
    for line in table([entry]).splitlines():
        write_line(line)
    write_line(f"next: rlanything speedrun verify {request.entry} {out}")


@app.command()
def verify(
    entry: Annotated[Path, typer.Argument(help="The file of an entry.")],
    out: Annotated[
        Path | None, typer.Argument(help="The folder of its runs, to recompute their digests.")
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Play the held-out games of the runs again.")
    ] = False,
    allow_code: ALLOW_CODE = False,
) -> None:
    """Recompute what can be recomputed of an entry; exit code 1 if anything is wrong."""
    from rlanything_lab.speedrun import challenge
    from rlanything_lab.speedrun.verify import check_entry, check_runs

    failed = False
    checks = [check_entry(entry, challenge.BOARD)]
    if out is not None:
        progress = Progress(Terminal(stderr=True))
        checks.append(check_runs(entry, out, progress, replay=replay, allow_code=allow_code))
    elif replay:
        raise challenge.SpeedrunError("--replay: name the folder of the runs, after the entry")
    for of_source in checks:
        for check in of_source:
            write_line(str(check))
            failed = failed or check.fault is not None
    if failed:
        raise typer.Exit(1)


@app.command("table")
def show_table(
    folder: Annotated[Path, typer.Argument(help="A folder of entries.")],
    page: Annotated[
        Path | None, typer.Option(help="A page of Markdown whose table is replaced.")
    ] = None,
) -> None:
    """Print the table of a folder's entries, or write it into a page."""
    from rlanything_lab.speedrun.table import read_entries, table, write_table

    entries = read_entries(folder)
    if page is None:
        for line in table(entries).splitlines():
            write_line(line)
    else:
        write_table(page, entries)
