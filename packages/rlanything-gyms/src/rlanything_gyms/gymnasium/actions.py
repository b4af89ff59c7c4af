"""Actions: parses the policy's text into a value of a Gymnasium action space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gymnasium import spaces
from rlanything.domains.base import DomainError
from rlanything.strict_json import read_json
from rlanything_gyms.ecosystem import action_names, actions_line

_MOST_NUMBERS = 64
"""Largest number of discrete actions that are listed by number if they have no names."""


class NoSuchAction(ValueError):
    """An impossible action; the policy reads the message."""


@dataclass(frozen=True, slots=True)
class ActionReader:
    """Parses the actions of one space."""

    space: spaces.Space[Any]
    values: Mapping[str, Any] | None
    """Actions by name; None: they are written out."""

    @classmethod
    def of(
        cls, space: spaces.Space[Any], actions: Sequence[str] | Mapping[str, Any] | None
    ) -> ActionReader:
        """Returns the reader for the actions in a recipe. Raises `DomainError` for names that do
        not fit the space."""
        if actions is None:
            small = isinstance(space, spaces.Discrete) and space.n <= _MOST_NUMBERS
            return cls(space, _numbered(space) if small else None)
        names = action_names(actions)
        if isinstance(actions, Mapping):
            values = {name: _fitted(space, value) for name, value in actions.items()}
        elif isinstance(space, spaces.Discrete) and space.n == len(names):
            values = dict(zip(names, _numbered(space).values(), strict=True))
        else:
            raise DomainError(
                f"actions names {len(names)}, the environment has {space}: name every one in its "
                "order, or write each name with its action, {left: 0, right: 2}"
            )
        for name, value in values.items():
            if not space.contains(value):
                raise DomainError(f"actions.{name} is {value!r:.80}, which is not in {space}")
        return cls(space, values)

    @property
    def choices(self) -> tuple[str, ...] | None:
        """All actions, if they have names; else None."""
        return None if self.values is None else tuple(self.values)

    @property
    def explanation(self) -> str:
        """The line that describes the actions."""
        if self.values is not None:
            return actions_line(self.values)
        if isinstance(self.space, spaces.Text):
            return "An action is a text."
        return f"An action is JSON in {self.space}."

    def value(self, action: str) -> Any:
        """Returns an action in the form that the environment takes. Raises `NoSuchAction`."""
        if self.values is not None:
            if action not in self.values:
                raise NoSuchAction(f"There is no such action. {self.explanation}")
            return self.values[action]
        if isinstance(self.space, spaces.Text):
            value: Any = action
        else:
            try:
                value = _fitted(self.space, read_json(action))
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
                raise NoSuchAction(f"This is no action. {self.explanation}") from None
        if not self.space.contains(value):
            raise NoSuchAction(f"This action is out of range. {self.explanation}")
        return value


def _numbered(space: Any) -> dict[str, Any]:
    first = int(space.start)
    return {str(number): number for number in range(first, first + int(space.n))}


def _fitted(space: Any, value: Any) -> Any:
    """Returns a JSON or YAML value in the types of a space."""
    if isinstance(space, spaces.Tuple):
        members = zip(space.spaces, value, strict=True)
        return tuple(_fitted(member, part) for member, part in members)
    if isinstance(space, spaces.Dict):
        return {name: _fitted(space[name], part) for name, part in value.items()}
    if isinstance(space, spaces.Sequence) and not space.stack:
        return tuple(_fitted(space.feature_space, part) for part in value)
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        fitted = np.asarray(value, dtype=space.dtype)
        if np.issubdtype(space.dtype, np.integer) and not np.array_equal(fitted, value):
            raise ValueError("a fraction where the space has whole numbers")
        return fitted
    return value
