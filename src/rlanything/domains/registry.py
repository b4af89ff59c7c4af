"""Domains and functions by their names in a recipe, or as objects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle

from rlanything.domains.base import Domain, DomainError
from rlanything.plugins import PluginError, load_plugin, make_plugin, plugin_names
from rlanything.records import Task

_INHERIT = (
    "inherit rlanything.TextDomain, which has all but tasks(split, count, seed) and environment() "
    "(docs/domains.md)"
)
_NOT_HERE = {
    "pettingzoo": "several agents that learn at once are not supported; TextArena's games train "
    "one seat after another with `seat: alternate` (packages/rlanything-gyms/README.md)",
    "mcp": "see the domain `tools`: packages/rlanything-gyms/README.md",
    "trl": "see the domain `tools`: packages/rlanything-gyms/README.md",
}
"""Names that users try, and what to do instead."""


class NoTask(DomainError):
    """A domain returned an invalid task."""


def load_domain(name: str, options: Mapping[str, Any]) -> Domain:
    """Returns the domain registered under `name` (an entry point of `rlanything.domains`), or the
    class that a `module:Class` string names, made with `options`.

    Raises `DomainError` if it does not exist, cannot be imported, or does not accept the
    options."""
    try:
        return make_plugin("domain", name, options, Domain, remedy=_INHERIT)
    except PluginError as error:
        hint = _NOT_HERE.get(name.lower()) if name not in plugin_names("domain") else None
        raise DomainError(f"{error}; {hint}" if hint else str(error)) from error


def checked_tasks(domain: Domain, split: str, count: int, seed: int) -> Sequence[Task]:
    """Returns the domain's tasks of a split. Raises `DomainError` for invalid tasks, which would
    end a run much later with a less clear message."""
    tasks = domain.tasks(split, count, seed)
    place = f"{type(domain).__qualname__}.tasks({split!r}, ...)"
    if not isinstance(tasks, Sequence):
        raise DomainError(f"{place} gave {tasks!r:.80}: return a list of rlanything.Task")
    tasks = [checked_task(place, task) for task in tasks]
    if len(tasks) > len({task.id for task in tasks}):
        twice = Counter(task.id for task in tasks).most_common(1)[0][0]
        raise DomainError(f"{place} gave {twice!r} twice: give every task an id of its own")
    return tasks


def checked_task(place: str, task: object) -> Task:
    """Returns a task with its data as they survive JSON, as a resumed run reads them. Raises
    `NoTask`."""
    if not isinstance(task, Task) or not all(
        isinstance(text, str) for text in (task.id, task.instruction, task.kind)
    ):
        raise NoTask(
            f"{place} gave {task!r:.80}: an rlanything.Task is due, each with a text of its own as "
            "id, and with texts as instruction and kind"
        )
    try:
        f"{task.id}{task.kind}".encode()
    except UnicodeEncodeError:
        raise NoTask(
            f"{place}: id {task.id!r:.80} or kind {task.kind!r:.80} is no text that can be stored: "
            "remove unpaired surrogates"
        ) from None
    try:
        return replace(task, data=json.loads(json.dumps(task.data)))
    except (TypeError, ValueError, RecursionError) as fault:
        raise NoTask(
            f"{place}: the data of task {task.id!r} cannot be kept as JSON ({fault}): give "
            "plain numbers, texts, lists and dictionaries"
        ) from None


def named_function(option: str, name: str, takes: str) -> Callable[..., Any]:
    """Returns the function that a domain's option names as `module:function`; `takes`: its
    parameters, for the message. Raises `DomainError` if there is no such function."""
    try:
        function = load_plugin(option, name)
    except PluginError as error:
        raise DomainError(f"{option}: {error}") from error
    if not callable(function):
        raise DomainError(f"{option}: {name} is no function: name one of {takes}")
    return function


@dataclass(frozen=True, slots=True)
class DomainSource:
    """Source of a process's domain: a name with options, or a picklable object."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    domain: Domain | None = None
    """The object itself, in the process that received it."""
    pickled: bytes | None = None
    """The pickled object, for another process."""

    @classmethod
    def of(cls, domain: str | Domain, options: Mapping[str, Any]) -> DomainSource:
        """Returns the source of a named domain, or of an object, which has its options already."""
        if isinstance(domain, str):
            return cls(domain, dict(options))
        return cls(type(domain).__qualname__, domain=domain)

    def portable(self) -> DomainSource:
        """Returns a source that can be sent to another process.

        Raises `DomainError` for an object that cannot be pickled."""
        if self.domain is None:
            return self
        try:
            return replace(self, domain=None, pickled=cloudpickle.dumps(self.domain))
        except Exception as fault:  # the object's own parts may raise anything
            raise DomainError(
                f"domain {self.name} cannot travel to environment workers ({fault}): play in this "
                "process with environment.workers=0, or name it as `module:Class`"
            ) from fault

    def load(self) -> Domain:
        """Returns the domain. Raises `DomainError` if this process cannot make it."""
        if self.domain is not None:
            return self.domain
        if self.pickled is None:
            return load_domain(self.name, self.options)
        try:
            return cloudpickle.loads(self.pickled)
        except Exception as fault:  # a missing module, or the object's own error
            raise DomainError(
                f"domain {self.name} cannot be unpickled in an environment worker ({fault}): play "
                "in this process with environment.workers=0, or put its module on PYTHONPATH"
            ) from fault
