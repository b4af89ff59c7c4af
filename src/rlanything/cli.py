"""The command line: registers the commands, and turns errors that a user can mend into one line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from rlanything.commands.registry import Commands
from rlanything.version import __version__


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rlanything {__version__}")
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
    derives from, one of this package) becomes one line and exit code 2."""
    from rlanything.runs.stopping import Stopped

    try:
        app()
    except ValueError as error:
        if not any(base.__module__.startswith("rlanything.") for base in type(error).__mro__):
            raise
        _say_error(f"error: {error}", error)
        sys.exit(2)
    except Stopped as stop:
        _say_error(f"stopped by {stop}: the unfinished iteration is left out", stop)
        sys.exit(stop.exit_code)


def _say_error(line: str, error: BaseException) -> None:
    text = "; ".join([line, *getattr(error, "__notes__", ())])
    Console(stderr=True).print(escape(text), soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
