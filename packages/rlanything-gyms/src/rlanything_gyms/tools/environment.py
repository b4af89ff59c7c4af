"""Episodes with the tools of a class and of MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlanything.domains.base import (
    DomainError,
    EpisodeError,
    InvalidTask,
    Observation,
    StepResult,
)
from rlanything.records import Task
from rlanything.surrogates import whole_characters
from rlanything_gyms.ecosystem import OwnRandomness
from rlanything_gyms.tools.calling import CallingEnvironment
from rlanything_gyms.tools.methods import (
    Factory,
    Tool,
    as_text,
    check_reset,
    made,
    method_tools,
    said,
    settled,
)
from rlanything_gyms.tools.reward import Played, RewardFunction, check_reward, reward_for
from rlanything_gyms.tools.rows import opening
from rlanything_gyms.tools.servers import McpFault, ServersSettings
from rlanything_gyms.winning import BadReward, WinRule


@dataclass(frozen=True, slots=True)
class ToolsSettings:
    """Options that the environments need."""

    environments: Mapping[str, Factory]
    """Classes by the rows' column `environment`; a single one has the name ""."""
    servers: ServersSettings | None
    reward: RewardFunction | None
    win: WinRule
    horizon: int | None
    result_characters: int


class ToolsEnvironment(CallingEnvironment):
    """Offers tools to the policy and carries out its calls."""

    def __init__(self, settings: ToolsSettings) -> None:
        super().__init__(settings.horizon, settings.result_characters)
        self._settings = settings
        self._instances: dict[str, tuple[Any, list[Tool]]] = {}
        """Instances with their tools, by name; they are used again as in TRL."""
        self._servers: Any = None
        if settings.servers is not None:
            from rlanything_gyms.tools.sessions import Servers  # needs the extra `mcp`

            self._servers = Servers(settings.servers)
        self._randomness = OwnRandomness()
        self._instance: Any = None

    def look(self, task: Task) -> None:
        """Makes what the episode of a task needs, to detect errors that would occur in every one.
        Raises `DomainError` and `EpisodeError`."""
        self._ready(task)
        row = task.data["row"]
        if self._instance is not None:
            check_reset(self._instance, self._columns(row))
        check_reward(Played(row, (), (), self._instance, self._servers), self._settings.reward)

    def reset(self, task: Task) -> Observation:
        tools = self._ready(task)
        row = task.data["row"]
        seen = None
        if self._instance is not None:
            self._randomness.seed(int(task.data["seed"]))
            try:
                with self._randomness.used():
                    seen = settled(self._instance.reset(**self._columns(row)))
            except (EpisodeError, DomainError):
                raise
            except InvalidTask as fault:
                raise EpisodeError(task.id, f"its environment calls it invalid: {fault}") from None
            except (Exception, SystemExit) as fault:  # the class's own error
                raise EpisodeError(task.id, f"reset failed ({said(fault)})") from fault
        text = None if seen is None else whole_characters(as_text(seen))
        return self._opened(task, opening(row.get("prompt"), text), tools)

    def close(self) -> None:
        """Ends the MCP sessions and forgets the instances."""
        if self._servers is not None:
            self._servers.stop()
        self._instances = {}
        self._instance = None

    def _ready(self, task: Task) -> list[Tool]:
        """Makes the instance of an episode, and returns its tools."""
        tools: list[Tool] = []
        self._instance = None
        if self._settings.environments:
            row = task.data["row"]
            name = "" if "" in self._settings.environments else row.get("environment")
            factory = self._settings.environments.get(name)
            if factory is None:
                known = ", ".join(self._settings.environments)
                raise EpisodeError(
                    task.id, f"its column environment is {name!r:.80}; write one of {known}"
                )
            place = getattr(factory, "__qualname__", str(factory))
            if name not in self._instances:
                with self._randomness.used():
                    instance = made(factory, place)
                self._instances[name] = instance, method_tools(instance, place)
            self._instance, methods = self._instances[name]
            tools += methods
        if self._servers is not None:
            tools += self._servers.start(task.id, with_names=bool(tools))
        names = [tool.name for tool in tools]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None or not tools:
            lack = "there are no tools" if twice is None else f"two tools are named {twice!r}"
            raise DomainError(f"{lack}: offer public methods or MCP tools with different names")
        return tools

    def _columns(self, row: Mapping[str, Any]) -> dict[str, Any]:
        single = "" in self._settings.environments
        return {name: row[name] for name in row if single or name != "environment"}

    def _before_calls(self) -> None:
        if self._servers is not None:
            self._servers.begin_calls()

    def _carried_out(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        with self._randomness.used():
            return tool.call(arguments)

    def _scored(self, text: str, action: str | None, valid: bool) -> StepResult:
        played = Played(
            self._task.data["row"], self._opening, self._rest, self._instance, self._servers
        )
        if self._servers is not None:
            self._servers.begin_calls()
        try:
            with self._randomness.used():
                reward = reward_for(played, self._settings.reward)
        except (EpisodeError, McpFault):
            raise
        except BadReward as fault:
            raise self._fault(str(fault)) from None
        except (Exception, SystemExit) as fault:  # the function's own error
            raise self._fault(f"reward failed ({said(fault)})") from fault
        won = self._settings.win.reached(reward)
        notes = [] if self._servers is None else self._servers.stop()
        seen = Observation("\n".join([text, *notes]))
        return StepResult(seen, action, valid, 1 if won else -1, reward)
