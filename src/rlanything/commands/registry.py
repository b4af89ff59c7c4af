"""The registered commands, for typer.

A command is an entry point of the group `rlanything.commands`: a typer function, or a `typer.Typer`
that groups several. Each is imported when it is called or listed in the help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperGroup

from rlanything.plugins import PluginError, install, load_plugin, plugin_names
from rlanything.terminal import literal

ORDER = ("train", "resume", "eval", "recipes", "report", "tasks", "export", "new", "doctor")
"""The order in the help; commands of other packages follow alphabetically."""
ELSEWHERE = {
    "agent": "serve-policy",
    "coding": "data sandbox",
    "judge": "feedback judge judge-eval serve",
    "lab": "ablate gradients judge-check rewrite-check speedrun",
    "nano": "nano",
    "planning": "plan",
    "tools": "serve-domain",
    "watch": "watch",
}
"""Commands of this project's other packages, by the extra that installs them."""
NEXT_STEPS = """\
Policy, judge and tasks learn from the same experience. Three next steps:

  rlanything train guess            train a tiny policy and its judge, in about two minutes
  rlanything recipes                list what else there is to train
  rlanything new environment NAME   start an environment of your own

`rlanything --help` lists all commands."""
"""The answer to `rlanything` without a command."""
_UsageError: Any = typer.BadParameter.__mro__[2]
"""Typer's error for an invalid command line, which it does not export."""


class CommandLineError(ValueError):
    """A command line is invalid; the message is one line with the remedy."""


class Commands(TyperGroup):
    """The group of registered commands. One that cannot be imported does not affect the others."""

    @cached_property
    def _names(self) -> list[str]:
        """Command names in order, read once: entry points are spread over all installed
        packages."""
        names = plugin_names("command")
        if not names:  # the checkout is newer than its installation
            raise PluginError("no commands are registered: run `pip install` on rlanything again")
        places = {name: place for place, name in enumerate(ORDER)}
        return sorted(names, key=lambda name: places.get(name, len(ORDER)))

    def make_context(self, *given: Any, **settings: Any) -> Any:
        with _one_line_errors():
            return super().make_context(*given, **settings)

    def invoke(self, ctx: Any) -> Any:
        with _one_line_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        return self._names

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns click's resolution of the command line. Raises `PluginError` for an unknown
        name, in one line, with the package to install if another one of the project has it."""
        if args[0] not in self._names:
            for extra, commands in ELSEWHERE.items():
                if args[0] in commands.split():
                    where = f"command {args[0]} is in a package of its own"
                    raise PluginError(f"{where}: {install(extra)}")
            known = ", ".join(self._names)
            raise PluginError(f"No such command {args[0]!r}: use one of {known}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns typer's object for a command; None: there is no such command."""
        if cmd_name not in self._names:
            return None
        try:
            return _typer_command(cmd_name, load_plugin("command", cmd_name))
        except Exception as fault:  # importing another package may raise anything
            return _unavailable(cmd_name, fault)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Raises typer's errors as `CommandLineError`; typer would print them over several lines, with
    the control characters that they quote."""
    try:
        yield
    except _UsageError as mistake:
        text = mistake.format_message()
        if not text:  # without arguments typer has printed the help
            raise
        context = getattr(mistake, "ctx", None)
        help_of = "" if context is None else f"; `{context.command_path} --help` says more"
        raise CommandLineError(f"{text.rstrip('.')}{help_of}") from None


def _typer_command(name: str, plugin: typer.Typer | Callable[..., Any], **settings: Any) -> Any:
    if isinstance(plugin, typer.Typer):
        command = typer.main.get_group(plugin)
        command.name = name
        return command
    single = typer.Typer(add_completion=False)
    single.command(name, **settings)(plugin)
    return typer.main.get_command(single)


def _unavailable(name: str, fault: Exception) -> Any:
    reason = str(fault)
    if not isinstance(fault, PluginError):
        reason = (
            f"command {name} cannot be used ({type(fault).__name__}: {fault}): fix or remove it"
        )

    def refuse() -> None:
        raise PluginError(reason) from fault

    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    help_text = literal(f"Not available: {reason}")
    return _typer_command(name, refuse, help=help_text, context_settings=anything)
