"""A family of tasks: one small world, its parameters, its controls and its expert."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from rlanything_physics.simulation import Simulation

Setting: TypeAlias = Mapping[str, int]
"""The value of every parameter of a family, by name."""
Shown: TypeAlias = Mapping[str, int]
"""The numbers that an agent reads, by name."""
LEVELS = (-3, -2, -1, 0, 1, 2, 3)
"""Levels of a motor's control; 3 is its full force."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A physical quantity that a task sets, as an integer."""

    name: str
    low: int
    """Smallest value that tasks of the training range have."""
    high: int
    least: int
    """Smallest value that any task may have."""
    most: int
    harder: Literal["more", "less", "away"]
    """The change that is expected to make a task harder; `away`: a larger absolute value."""

    def changes(self, value: int, makes: Literal["harder", "easier"]) -> list[int]:
        """Returns the other possible values that should make a task of this value harder, or
        easier; the nearest first."""
        others = [each for each in range(self.least, self.most + 1) if each != value]
        if self.harder == "away":
            others = [each for each in others if abs(each) != abs(value)]
            right = [each for each in others if (abs(each) > abs(value)) == (makes == "harder")]
        else:
            upwards = (self.harder == "more") == (makes == "harder")
            right = [each for each in others if (each > value) == upwards]
        return sorted(right, key=lambda each: abs(each - value))


@dataclass(frozen=True, slots=True)
class Failure:
    """The description of a lost episode."""

    text: str
    """Course of the episode, in words and numbers; it proposes no change."""
    parameters: tuple[str, ...]
    """The parameters that have to do with it."""


class WorldFamily(ABC):
    """A kind of world. A state is shown as integers; the expert reads what an agent reads."""

    name: ClassVar[str]
    goal: ClassVar[str]
    """The instruction before the parameters."""
    actions: ClassVar[tuple[str, ...]]
    """The controls, in the order of their effect."""
    parameters: ClassVar[tuple[Parameter, ...]]
    decisions: ClassVar[int]
    """Number of decisions after which an episode is lost."""

    @abstractmethod
    def xml(self, p: Setting) -> str:
        """Returns the world as MJCF."""
        ...

    def start(self, world: Simulation, p: Setting) -> None:
        """Sets the first state of an episode; by default that of the world as it is compiled."""
        del world, p

    @abstractmethod
    def act(self, world: Simulation, p: Setting, action: str, taken: int) -> int | None:
        """Plays one of the actions. Returns 1 or -1 if it ended the episode, otherwise None.
        `taken`: number of decisions, this one included."""
        ...

    @abstractmethod
    def show(self, world: Simulation, p: Setting) -> str:
        """Returns the state in numbers."""
        ...

    @abstractmethod
    def decide(self, p: Setting, shown: Shown) -> tuple[str, str]:
        """Returns the expert's thought and action."""
        ...

    @abstractmethod
    def failure(self, p: Setting, shown: Sequence[Shown]) -> Failure:
        """Returns the description of a lost episode from its states, the first one included."""
        ...


def whole(value: float, unit: float = 1.0) -> int:
    """Returns a quantity as the nearest integer of a unit."""
    return round(value / unit)


def level(force: float, full: float) -> int:
    """Returns the level of a motor whose full force is `full` that is nearest to a force."""
    return max(LEVELS[0], min(LEVELS[-1], round(3 * force / full)))


def share(action: str) -> float:
    """Returns the share of the full force that the level in an action stands for."""
    return int(action.split()[1]) / 3


def numbers_in(text: str) -> dict[str, int]:
    """Returns the integers in a text by the word before each; the last one counts."""
    return {name: int(value) for name, value in re.findall(r"([a-z]+) (-?\d+)", text)}
