"""The tools domain: classes written for TRL's `environment_factory`, and MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Annotated, Any

from pydantic import Field

from rlanything.domains.base import (
    Capabilities,
    CodeName,
    DomainError,
    EpisodeError,
    File,
)
from rlanything.domains.registry import named_function
from rlanything.domains.rows import TaskSet, check_shares
from rlanything.domains.text import TextDomain
from rlanything.records import Task
from rlanything_gyms.ecosystem import split_seeds
from rlanything_gyms.tools.calling import CallingOptions
from rlanything_gyms.tools.environment import ToolsEnvironment, ToolsSettings
from rlanything_gyms.tools.methods import Factory
from rlanything_gyms.tools.rows import NO_PROMPT, read_rows
from rlanything_gyms.tools.servers import ServerOptions, ServersSettings, server_of
from rlanything_gyms.winning import WinRule


class ToolsDomain(TextDomain):
    """Tasks that the policy solves by calling tools, in its model's own format."""

    class Options(CallingOptions):
        environment: (
            CodeName | Callable[[], Any] | Mapping[str, CodeName | Callable[[], Any]] | None
        ) = None
        """A class `module:Class` as for TRL's `environment_factory`: its public methods are the
        tools. Or several, by the rows' column `environment`."""
        mcp: Mapping[str, ServerOptions] = Field(default_factory=dict)
        """MCP servers by name, each with `command` or `url`."""
        tasks: File | Sequence[Any] | None = None
        """A file of JSON lines, or a list of such rows, with the columns of TRL's data set; None:
        every task is an empty prompt with a seed, and `reset` returns the first message."""
        reward: CodeName | Callable[..., Any] | None = None
        """A reward function `module:function` as TRL has it; None: the class's `get_reward`. With
        both, their sum."""
        win_at: float = 1.0
        """Reward from which an episode is won."""
        splits: Mapping[str, float] = Field({"train": 0.8, "in_domain": 0.2}, min_length=1)
        """Share of each split if the rows do not name their `split`."""
        timeout_seconds: Annotated[float, Field(gt=0)] = 30.0
        """Limit of starting the MCP servers, and of the calls of one answer to them; keep it below
        `environment.timeout_seconds`."""

    def __init__(self, **options: Any) -> None:
        """Raises `DomainError` for options it cannot use."""
        super().__init__(**options)
        chosen = self.options
        check_shares(chosen.splits)
        if chosen.environment is None and not chosen.mcp:
            raise DomainError("name the tools: environment=module:Class, mcp={...}, or both")
        named = isinstance(chosen.environment, Mapping)
        if chosen.tasks is None and (chosen.environment is None or named):
            raise DomainError("name the tasks: only a single environment can make up its own")
        if chosen.reward is None and chosen.environment is None:
            raise DomainError(
                "name a reward for what the MCP servers are used for: module:function"
            )
        if chosen.mcp and find_spec("mcp") is None:
            raise DomainError("mcp needs the SDK: pip install 'rlanything[mcp]'")
        self._rows: TaskSet | None = None
        if chosen.tasks is not None:
            self._rows = read_rows(chosen.tasks, chosen.splits)
        servers = {name: server_of(name, options) for name, options in chosen.mcp.items()}
        self._settings = ToolsSettings(
            environments=_factories(chosen.environment),
            servers=ServersSettings(servers, chosen.timeout_seconds) if servers else None,
            reward=_function("reward", chosen.reward, "(environments, **columns)"),
            win=WinRule.at(chosen.win_at),
            horizon=chosen.horizon,
            result_characters=chosen.result_characters,
        )
        self._looked = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(offers_tools=True)

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        if self._rows is not None:
            tasks: Sequence[Task] = self._rows.tasks(split, count, seed)
        else:
            tasks = [_seeded(split, number) for number in split_seeds(split, count, seed)]
        if tasks and not self._looked:
            self._look(tasks[0])
        return tasks

    def environment(self) -> ToolsEnvironment:
        return ToolsEnvironment(self._settings)

    def _look(self, task: Task) -> None:
        """Makes the tools of a task, to detect errors that would occur in every one."""
        environment = self.environment()
        try:
            environment.look(task)
        except EpisodeError as fault:
            raise DomainError(fault.reason) from fault
        finally:
            environment.close()
        self._looked = True


def _seeded(split: str, seed: int) -> Task:
    row = {"prompt": [dict(message) for message in NO_PROMPT]}
    return Task(f"{split}-{seed}", "", "", {"row": row, "seed": seed})


def _factories(environment: Any) -> Mapping[str, Factory]:
    if environment is None:
        return {}
    if not isinstance(environment, Mapping):
        environment = {"": environment}
    factories: dict[str, Factory] = {}
    for name, given in environment.items():
        function = _function("environment", given, "(), a class")
        assert function is not None
        factories[name] = function
    return factories


def _function(option: str, given: Any, takes: str) -> Callable[..., Any] | None:
    if not isinstance(given, str):
        return given
    if ":" not in given:
        raise DomainError(f"{option} is {given!r:.80}: write module:name")
    return named_function(option, given, takes)
