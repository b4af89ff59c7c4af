"""Episodes on an OpenEnv server, through the client that OpenEnv brings."""

# An extra, which type checkers need not have.
# pyright: reportMissingImports=false
from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from openenv.core import GenericEnvClient

from rlanything.records import Task
from rlanything_gyms.ecosystem import GameTurn

ACTION = "$action"
"""Where the policy's action belongs in the one that is sent."""
_INVALID = "(code: VALIDATION_ERROR)"
"""The end of what the client raises for an action that is none; before it, the environment says
what it likes."""


class ServerFault(RuntimeError):
    """A server that is gone, or that failed; one line that ends with the remedy."""


class RefusedAction(ServerFault):
    """A server that takes an action for none."""


@dataclass(frozen=True, slots=True)
class OpenEnvSettings:
    """The part of a domain's options that its environments need."""

    url: str
    action: Mapping[str, Any]
    observation: str | None
    choices: tuple[str, ...] | None
    timeout_seconds: float


class OpenEnvGame:
    """Episodes over one connection, opened when it is needed."""

    def __init__(
        self, settings: OpenEnvSettings, reset_arguments: Callable[[Task], Mapping[str, Any]]
    ) -> None:
        self._settings, self._reset_arguments = settings, reset_arguments
        self._client: Any = None

    def begin(self, task: Task) -> GameTurn:
        arguments = {**self._reset_arguments(task), "seed": int(task.data["seed"])}
        result = self._asked(lambda: self._connected().reset(**arguments))
        return self._turn(result, 0.0)

    def play(self, action: str) -> GameTurn:
        sent = filled(self._settings.action, action)
        try:
            result = self._asked(lambda: self._connected().step(sent))
        except RefusedAction:
            return GameTurn("The server calls this no action.", self._settings.choices, valid=False)
        # A server that says nothing of a reward gives none.
        return self._turn(result, 0.0 if result.reward is None else result.reward)

    def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            client.close()

    def _connected(self) -> Any:
        if self._client is None:
            seconds = self._settings.timeout_seconds
            client = GenericEnvClient(
                self._settings.url, connect_timeout_s=seconds, message_timeout_s=seconds
            ).sync()
            self._client = client.connect()
        return self._client

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Returns what the server answers. Raises `ServerFault`."""
        url, seconds = self._settings.url, self._settings.timeout_seconds
        try:
            return ask()
        except TimeoutError as fault:
            raise ServerFault(
                f"the OpenEnv server at {url} gave no answer within {seconds:g} s: see to it, or "
                "raise domain.options.timeout_seconds"
            ) from fault
        except Exception as fault:  # a socket's or the server's own complaint
            said = " ".join(f"{type(fault).__name__}: {fault}".split())[:300]
            # One that is full says so and hangs up in good order; the second may be heard first.
            full = "capacity" in said.lower() or "ConnectionClosedOK" in said
            remedy = (
                "let it hold more sessions (max_concurrent_envs), or lower "
                "environment.parallel_episodes"
                if full
                else "start it, or mend domain.options"
            )
            kind = RefusedAction if str(fault).rstrip().endswith(_INVALID) else ServerFault
            raise kind(f"the OpenEnv server at {url} fails ({said}): {remedy}") from fault

    def _turn(self, result: Any, reward: Any) -> GameTurn:
        seen = result.observation if isinstance(result.observation, Mapping) else {}
        text = shown(field_of(seen, self._settings.observation))
        info = {key: value for key, value in seen.items() if isinstance(value, int | float)}
        over = bool(result.done)
        choices = None if over else self._settings.choices
        return GameTurn(text, choices, reward, over, info=info)


def filled(part: Any, action: str) -> Any:
    """Returns an action's template with the policy's action in it."""
    if isinstance(part, Mapping):
        return {name: filled(value, action) for name, value in part.items()}
    if isinstance(part, list):
        return [filled(value, action) for value in part]
    return action if part == ACTION else part


def field_of(observation: Mapping[str, Any], path: str | None) -> Any:
    """Returns a field of an observation, `outer.inner`; None: all that is not for machines. Raises
    `ServerFault` for one that is not there."""
    if path is None:
        return {name: value for name, value in observation.items() if name != "metadata"}
    value: Any = observation
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            known = ", ".join(map(str, observation)) or "none"
            raise ServerFault(
                f"the observation has no field {path!r}, but {known}: mend "
                "domain.options.observation"
            )
        value = value[name]
    return value


def shown(value: Any) -> str:
    """Returns a field as the policy reads it."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{name}: {shown(part)}" for name, part in value.items())
    return json.dumps(value)
