"""The command line: registers the commands, and turns errors that a user can mend into one line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rlanything.commands.registry import Commands
from rlanything.terminal import write_line, write_traceback
from rlanything.version import __version__


def _version(wanted: bool) -> None:
    if wanted:
        write_line(f"rlanything {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Closed-loop reinforcement learning: a policy, a generative judge and the environment's "
    "tasks improve one another (RLAnything, arXiv 2602.02488).",
)


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def main() -> None:
    """Runs the command line. An error that a user can mend (a `ValueError` of a class that is, or
    derives from, one of this package), or an episode that cannot begin, becomes one line and exit
    code 2."""
    from rlanything.runs.stopping import Stopped

    try:
        app()
    except Stopped as stop:
        _say_error(f"stopped by {stop}: the unfinished iteration is left out", stop)
        sys.exit(stop.exit_code)
    except Exception as error:
        if not _mendable(error):
            sys.excepthook = write_traceback  # Python's own prints the message as it is
            raise
        _say_error(f"error: {error}", error)
        sys.exit(2)


def _mendable(error: Exception) -> bool:
    from rlanything.domains.base import EpisodeError

    kinds = type(error).__mro__
    own = any(kind.__module__.startswith("rlanything.") for kind in kinds)
    return own and (ValueError in kinds or EpisodeError in kinds)


def _say_error(line: str, error: BaseException) -> None:
    text = "; ".join([line, *getattr(error, "__notes__", ())])
    write_line(text, stderr=True)


if __name__ == "__main__":
    main()
