"""Rendering: the text that a policy reads of a Gymnasium environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gymnasium import spaces
from rlanything.domains.base import DomainError

Renderer = Callable[[Any, Any], str]
"""A function of the environment and the observation."""
MOST_NUMBERS = 128
"""Largest number of values in an observation that are shown as numbers."""
_MARKED = re.compile(r"\x1b\[[0-9;]*m(.*?)\x1b\[0m", re.DOTALL)
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_WAYS = "`observation`, a method of the environment that returns text, or `module:function`"


@dataclass(frozen=True, slots=True)
class Rendering:
    """One way to show an environment."""

    way: str | Renderer
    """`ansi`, `observation`, the name of a method, or a function."""

    @property
    def ansi(self) -> bool:
        return self.way == "ansi"

    def check(self, environment: Any) -> None:
        """Raises `DomainError` for a method that the environment lacks."""
        if isinstance(self.way, str) and self.way not in ("ansi", "observation"):
            method = getattr(environment.unwrapped, self.way, None)
            if self.way.startswith("_") or not callable(method):
                raise DomainError(
                    f"render is {self.way!r}, and the environment has no such method: use {_WAYS}"
                )

    def text(self, environment: Any, observation: Any) -> str:
        """Returns the shown text. Texts in an observation with several parts are always shown."""
        if self.way == "observation":
            return described(observation)
        if self.ansi:
            shown = marked(environment.render())
        elif isinstance(self.way, str):
            shown = getattr(environment.unwrapped, self.way)()
        else:
            return str(self.way(environment, observation))
        parts = observation.items() if isinstance(observation, Mapping) else ()
        texts = [f"{name}: {part}" for name, part in parts if isinstance(part, str)]
        return "\n".join([*texts, str(shown).strip("\n")])


def rendering_of(render: str | Renderer | None, modes: Sequence[str]) -> Rendering:
    """Returns the rendering for an environment with these render modes. Raises `DomainError`."""
    if render is None:
        return Rendering("ansi" if "ansi" in modes else "observation")
    if render == "ansi" and "ansi" not in modes:
        raise DomainError(f"render is ansi, which the environment does not offer: use {_WAYS}")
    if not (callable(render) or (isinstance(render, str) and render)):
        raise DomainError(f"render is {render!r:.80}: use ansi, {_WAYS}")
    return Rendering(render)


def check_observations(environment: Any, rendering: Rendering) -> None:
    """Raises `DomainError` for observations with too many numbers to read."""
    count = _numbers(environment.observation_space)
    if rendering.way == "observation" and count > MOST_NUMBERS:
        raise DomainError(
            f"its observations are {count} numbers, too many to read: set "
            "domain.options.render to a method of the environment that returns text, or to "
            "`module:function`"
        )


def described(observation: Any) -> str:
    """Returns an observation in words: its parts by name, its numbers with four digits."""
    if isinstance(observation, Mapping):
        return "\n".join(f"{name}: {described(part)}" for name, part in observation.items())
    if isinstance(observation, tuple | list):
        return ", ".join(map(described, observation))
    if isinstance(observation, np.ndarray):
        return np.array2string(
            observation, separator=", ", formatter={"float_kind": "{:.4g}".format}
        )
    return str(observation)


def marked(screen: Any) -> str:
    """Returns a terminal text in plain characters; highlighted text is in brackets."""
    return _CONTROL.sub("", _MARKED.sub(r"[\1]", str(screen)))


def _numbers(space: Any) -> int:
    if isinstance(space, spaces.Dict):
        return sum(map(_numbers, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return sum(map(_numbers, space.spaces))
    return int(np.prod(space.shape)) if space.shape else 1
