"""The registered commands, as typer wants them.

A command is an entry point of the group `rlanything.commands`: a function as typer takes it, or a
`typer.Typer` that groups several. Each is imported when it is called or listed in the help.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from rlanything.plugins import PluginError, load_plugin, plugin_names

ORDER = (
    *("train", "resume", "eval", "plan", "recipes", "report", "tasks", "export", "doctor"),
    *("feedback", "judge-check", "ablate", "sandbox", "nano"),
)
"""The order in the help; commands of other packages follow alphabetically."""


class Commands(TyperGroup):
    """The group of registered commands. One that cannot be imported does not affect the others."""

    @cached_property
    def _names(self) -> list[str]:
        """The names in order, read once: entry points are in a file of every installed package."""
        names = plugin_names("command")
        if not names:  # the checkout is newer than its installation
            raise PluginError("no commands are registered: run `pip install` on rlanything again")
        places = {name: place for place, name in enumerate(ORDER)}
        return sorted(names, key=lambda name: places.get(name, len(ORDER)))

    def list_commands(self, ctx: Any) -> list[str]:
        return self._names

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns what click makes of the command line. Raises `PluginError` for an unknown name,
        which is one line as everywhere."""
        if args[0] not in self._names:
            known = ", ".join(self._names)
            raise PluginError(f"No such command {args[0]!r}: use one of {known}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns typer's object for a command; None: there is none of that name."""
        if cmd_name not in self._names:
            return None
        try:
            return _typer_command(cmd_name, load_plugin("command", cmd_name))
        except Exception as fault:  # another package may raise anything while it is imported
            return _unavailable(cmd_name, fault)


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
    help_text = escape(f"Not available: {reason}")
    return _typer_command(name, refuse, help=help_text, context_settings=anything)
