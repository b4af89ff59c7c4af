"""The openenv domain: episodes on an OpenEnv server, local or remote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from rlanything.domains.base import DomainError
from rlanything.records import Task
from rlanything_gyms.ecosystem import (
    EcosystemDomain,
    EcosystemEnvironment,
    EcosystemOptions,
    EpisodeRules,
    action_names,
    actions_line,
)
from rlanything_gyms.openenv.game import (
    ACTION,
    OpenEnvGame,
    OpenEnvSettings,
    ServerFault,
)
from rlanything_gyms.winning import WinRule


class OpenEnvDomain(EcosystemDomain):
    """Episodes on an OpenEnv server, one connection for each environment.

    Raises `DomainError` for invalid options, and later if no such server answers."""

    class Options(EcosystemOptions):
        url: str
        """Address of the server."""
        win: Mapping[str, Any]
        """Condition for winning an episode (`winning.py`)."""
        action: Mapping[str, Any] = Field({"message": ACTION})
        """The action that is sent, with `$action` as the placeholder of the policy's."""
        observation: str | None = None
        """The field that the policy reads, `outer.inner` for one inside another; None: all."""
        actions: Sequence[Any] | None = None
        """The actions to choose among; None: any text."""
        reset: Mapping[str, Any] = Field(default_factory=dict)
        """Further arguments of the server's reset, besides the seed; `ood` differs in these."""
        reward_range: Any = None
        """Lowest and highest return; None: any."""
        timeout_seconds: Annotated[float, Field(gt=0)] = 30.0
        """Limit of one answer."""

    def __init__(self, **options: Any) -> None:
        chosen = self.Options.read(options)
        url, action = chosen.url, chosen.action
        address = urlsplit(url)
        if address.scheme not in ("http", "https", "ws", "wss") or not address.hostname:
            raise DomainError(f"url is {url!r:.80}: write one such as http://localhost:8000")
        if not _holds_action(action):
            raise DomainError(
                f"action is {action!r:.80}: write the server's action, with {ACTION} where the "
                "policy's belongs, such as {message: $action}"
            )
        instruction = chosen.instruction or "Act in this environment."
        super().__init__(address.netloc, instruction, chosen.ood)
        self._rules = EpisodeRules.read(
            WinRule.read(chosen.win), chosen.reward_range, chosen.horizon
        )
        self._reset = chosen.reset
        choices = None if chosen.actions is None else action_names(chosen.actions)
        self._settings = OpenEnvSettings(
            url, action, chosen.observation, choices, chosen.timeout_seconds
        )
        if choices:
            self._instruction += f"\n{actions_line(choices)}"
        self._looked = False

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        tasks = super().tasks(split, count, seed)
        if not self._looked and tasks:
            self._look(tasks[0])
        return tasks

    def environment(self) -> EcosystemEnvironment:
        game = OpenEnvGame(self._settings, lambda task: self.settings(task.data, self._reset))
        return EcosystemEnvironment(game, self._rules)

    def _look(self, task: Task) -> None:
        """Begins an episode, to detect errors that would occur in every one."""
        environment = self.environment()
        try:
            environment.reset(task)
        except ServerFault as fault:
            raise DomainError(str(fault)) from fault
        finally:
            environment.close()
        self._looked = True


def _holds_action(part: Any) -> bool:
    parts = part.values() if isinstance(part, Mapping) else part
    if isinstance(part, Mapping | list):
        return any(map(_holds_action, parts))
    return part == ACTION
