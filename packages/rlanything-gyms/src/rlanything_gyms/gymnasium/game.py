"""Creates and plays Gymnasium environments."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium.error import UnregisteredEnv

import gymnasium
from rlanything.domains.base import DomainError
from rlanything.plugins import PluginError, check_import
from rlanything.records import Task
from rlanything_gyms.ecosystem import GameTurn, silenced
from rlanything_gyms.gymnasium.actions import ActionReader, NoSuchAction
from rlanything_gyms.gymnasium.rendering import Renderer, Rendering, rendering_of

Make = Callable[[Mapping[str, Any]], tuple[Any, Rendering]]
"""Creates the environment of a task's data, with its rendering."""


def make_environment(
    id: str, kwargs: Mapping[str, Any], render: str | Renderer | None
) -> tuple[Any, Rendering]:
    """Returns an environment and its rendering. Raises `DomainError` if Gymnasium cannot create
    it."""
    try:
        if ":" in id:
            check_import("id", id)
        with silenced():
            modes = _render_modes(id)
            rendering = rendering_of(render, modes)
            mode = {"render_mode": "ansi"} if rendering.ansi else {}
            environment = gymnasium.make(id, **{**mode, **kwargs})
            rendering.check(environment)
            return environment, rendering
    except DomainError:
        raise
    except PluginError as fault:
        raise DomainError(str(fault)) from None
    except ModuleNotFoundError as fault:
        raise DomainError(
            f"gymnasium.make({id!r}) needs the module {fault.name}: install the package that has it"
        ) from fault
    except UnregisteredEnv as fault:
        raise DomainError(
            f"{_line(fault)}: install what registers it and write domain.options.id=module:ID"
        ) from fault
    except Exception as fault:  # the environment's own code may raise anything
        raise DomainError(
            f"gymnasium.make({id!r}, **{dict(kwargs)!r:.120}) failed ({type(fault).__name__}: "
            f"{_line(fault)}): fix domain.options"
        ) from fault


class GymnasiumGame:
    """Episodes of an environment, which is created again if the next task has other settings."""

    def __init__(self, make: Make, reader: ActionReader) -> None:
        self._make = make
        self._reader = reader
        self._made: tuple[bool, Any, Rendering] | None = None

    def begin(self, task: Task) -> GameTurn:
        ood = bool(task.data.get("ood"))
        if self._made is None or self._made[0] != ood:
            self.close()
            self._made = (ood, *self._make(task.data))
        _, environment, rendering = self._made
        with silenced():
            observation, info = environment.reset(seed=int(task.data["seed"]))
            text = rendering.text(environment, observation)
        return GameTurn(text, self._reader.choices, info=info)

    def play(self, action: str) -> GameTurn:
        assert self._made is not None
        _, environment, rendering = self._made
        try:
            value = self._reader.value(action)
        except NoSuchAction as refusal:
            return GameTurn(str(refusal), self._reader.choices, valid=False)
        with silenced():
            observation, reward, terminated, truncated, info = environment.step(value)
            text = rendering.text(environment, observation)
        over, ended = bool(terminated or truncated), bool(terminated)
        return GameTurn(text, self._reader.choices, reward, over, ended, info)

    def close(self) -> None:
        if self._made is not None:
            (_, environment, _), self._made = self._made, None
            environment.close()


def _render_modes(id: str) -> list[str]:
    """Returns the render modes of an environment, if its class declares them."""
    module, _, name = id.rpartition(":")
    if module:
        importlib.import_module(module)
    creator = gymnasium.spec(name).entry_point
    if isinstance(creator, str):
        from gymnasium.envs.registration import load_env_creator

        creator = load_env_creator(creator)
    metadata = getattr(creator, "metadata", None)
    modes = metadata.get("render_modes") if isinstance(metadata, Mapping) else None
    return [mode for mode in modes or [] if isinstance(mode, str)]


def _line(fault: BaseException) -> str:
    return " ".join(str(fault).split())[:300].rstrip(".")
