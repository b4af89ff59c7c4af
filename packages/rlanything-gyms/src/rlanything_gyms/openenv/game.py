"""Episodes on an OpenEnv server, through OpenEnv's own client."""

# The package is an extra, so type checkers may lack it.
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
"""Placeholder for the policy's action in the action template."""
_INVALID = "(code: VALIDATION_ERROR)"
"""End of the client's error message for an invalid action; the text before it comes from the
environment."""


class ServerFault(RuntimeError):
    """A server that is gone or failed; one line that ends with the remedy."""


class RefusedAction(ServerFault):
    """A server's refusal of an invalid action."""


@dataclass(frozen=True, slots=True)
class OpenEnvSettings:
    """Options that the environments need."""

    url: str
    action: Mapping[str, Any]
    observation: str | None
    choices: tuple[str, ...] | None
    timeout_seconds: float


class OpenEnvGame:
    """Episodes over one connection, opened on first use."""

    def __init__(
        self, settings: OpenEnvSettings, reset_arguments: Callable[[Task], Mapping[str, Any]]
    ) -> None:
        self._settings = settings
        self._reset_arguments = reset_arguments
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
        # A missing reward counts as 0.
        return self._turn(result, 0.0 if result.reward is None else result.reward)

    def close(self) -> None:
        if self._client is not None:
            client = self._client
            self._client = None
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
        """Returns the server's answer. Raises `ServerFault`."""
        url, seconds = self._settings.url, self._settings.timeout_seconds
        try:
            return ask()
        except TimeoutError as fault:
            raise ServerFault(
                f"the OpenEnv server at {url} gave no answer within {seconds:g} s: see to it, or "
                "raise domain.options.timeout_seconds"
            ) from fault
        except Exception as fault:  # an error from a socket or the server
            said = " ".join(f"{type(fault).__name__}: {fault}".split())[:300]
            # A full server reports it and closes the connection properly; either message may arrive
            # first.
            full = "capacity" in said.lower() or "ConnectionClosedOK" in said
            remedy = (
                "let it hold more sessions (max_concurrent_envs), or lower "
                "environment.parallel_episodes"
                if full
                else "start it, or fix domain.options"
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
    """Returns an action's template with the policy's action filled in."""
    if isinstance(part, Mapping):
        return {name: filled(value, action) for name, value in part.items()}
    if isinstance(part, list):
        return [filled(value, action) for value in part]
    return action if part == ACTION else part


def field_of(observation: Mapping[str, Any], path: str | None) -> Any:
    """Returns a field of an observation, `outer.inner`; None: all fields that are meant for
    reading. Raises `ServerFault` for a missing field."""
    if path is None:
        return {name: value for name, value in observation.items() if name != "metadata"}
    value: Any = observation
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            known = ", ".join(map(str, observation)) or "none"
            raise ServerFault(
                f"the observation has no field {path!r}, but {known}: fix "
                "domain.options.observation"
            )
        value = value[name]
    return value


def shown(value: Any) -> str:
    """Returns a field as text for the policy."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{name}: {shown(part)}" for name, part in value.items())
    return json.dumps(value)
