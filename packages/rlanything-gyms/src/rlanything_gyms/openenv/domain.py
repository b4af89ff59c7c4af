"""The openenv domain: episodes on an OpenEnv server, local or remote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from rlanything.domains.base import DomainError
from rlanything.domains.winning import WinRule
from rlanything.records import Task
from rlanything_gyms.ecosystem import (
    EcosystemDomain,
    EcosystemEnvironment,
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

_MESSAGE = MappingProxyType({"message": ACTION})


class OpenEnvDomain(EcosystemDomain):
    """Episodes on an OpenEnv server, one connection for each environment.

    `url`: address of the server. `win`: conditions for winning (`domains/winning.py`). `action`:
    template of the action to send; `$action` stands for the policy's action. `observation`: the
    field that the policy reads, `outer.inner` for a nested one; None: all fields. `actions`: the
    actions to choose among; None: any text. `reset`: further arguments of the server's reset,
    besides the seed. `instruction`: the policy's instruction. `horizon`: largest number of steps.
    `reward_range`: range of the return. `timeout_seconds`: time limit of an answer. `ood`: the
    arguments of reset that differ in the split `ood`.

    Raises `DomainError` for invalid options, and later if no such server answers."""

    def __init__(
        self,
        url: str,
        win: Mapping[str, Any],
        action: Mapping[str, Any] = _MESSAGE,
        observation: str | None = None,
        actions: Sequence[str] | None = None,
        reset: Mapping[str, Any] = MappingProxyType({}),
        instruction: str | None = None,
        horizon: int | None = None,
        reward_range: Sequence[float] | None = None,
        timeout_seconds: float = 30.0,
        ood: Mapping[str, Any] | None = None,
    ) -> None:
        address = urlsplit(str(url))
        if address.scheme not in ("http", "https", "ws", "wss") or not address.hostname:
            raise DomainError(f"url is {url!r:.80}: write one such as http://localhost:8000")
        if not isinstance(action, Mapping) or not _holds_action(action):
            raise DomainError(
                f"action is {action!r:.80}: write the server's action, with {ACTION} where the "
                "policy's belongs, such as {message: $action}"
            )
        if not isinstance(timeout_seconds, int | float) or not timeout_seconds > 0:
            raise DomainError(f"timeout_seconds is {timeout_seconds!r}: give seconds above 0")
        super().__init__(address.netloc, instruction or "Act in this environment.", ood)
        self._rules = EpisodeRules.read(WinRule.read(win), reward_range, horizon)
        self._reset = reset
        choices = None if actions is None else action_names(actions)
        self._settings = OpenEnvSettings(url, action, observation, choices, float(timeout_seconds))
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
