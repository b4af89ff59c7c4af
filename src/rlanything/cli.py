"""The command line: registers the commands, and prints errors that a user can fix in one line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rlanything.commands.registry import NEXT_STEPS, Commands
from rlanything.terminal import warnings_as_lines, write_line, write_traceback
from rlanything.version import __version__


def _version(wanted: bool) -> None:
    if wanted:
        write_line(f"rlanything {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Closed-loop reinforcement learning: a policy, a generative judge and the environment's "
    "tasks improve one another (RLAnything, arXiv 2602.02488).",
)


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        for line in NEXT_STEPS.splitlines():
            write_line(line)


def main() -> None:
    """Runs the command line. Errors that a user can fix become one line and exit code 2: a
    `ValueError` whose class is, or derives from, one of the core or of a neighbour, and episodes
    that cannot begin."""
    from rlanything.runs.stopping import Stopped

    warnings_as_lines()
    try:
        app()
    except Stopped as stop:
        _write_error(f"stopped by {stop}: the unfinished iteration is left out", stop)
        sys.exit(stop.exit_code)
    except Exception as error:
        if not _fixable(error):
            sys.excepthook = write_traceback  # Python's own prints untrusted text unescaped
            raise
        _write_error(f"error: {error}", error)
        sys.exit(2)


def _fixable(error: Exception) -> bool:
    from rlanything.domains.base import EpisodeError

    kinds = type(error).__mro__
    own = any(kind.__module__.startswith(("rlanything.", "rlanything_")) for kind in kinds)
    return own and (ValueError in kinds or EpisodeError in kinds)


def _write_error(line: str, error: BaseException) -> None:
    text = "; ".join([line, *getattr(error, "__notes__", ())])
    write_line(text, stderr=True)


if __name__ == "__main__":
    main()
