"""Winning: decides whether an episode was won, by conditions in a recipe.

win: {return: ">= 1"}                     # the sum of its rewards
win: {terminated: true, steps: "< 50"}    # if there are several, all must hold
"""

from __future__ import annotations

import math
import numbers
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from rlanything.domains.base import DomainError
from rlanything.domains.rounding import as_good

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*")
_QUANTITIES = ("return", "reward", "steps", "terminated")
_GRAMMAR = (
    "return, reward, steps, terminated or info.NAME, each with a comparison such as '>= 1', a "
    "number, true or false"
)


class BadReward(ValueError):
    """An invalid report of an environment; one line that ends with the remedy."""


@dataclass(frozen=True, slots=True)
class EpisodeEnd:
    """Everything known about an episode at its end."""

    total: float
    """Sum of its rewards, called `return` in conditions."""
    last: float
    """The last reward."""
    steps: int
    terminated: bool
    """False if it was only cut off, by the environment or at the horizon."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Further information from the environment with its last step."""


@dataclass(frozen=True, slots=True)
class WinRule:
    """Conditions that must all hold."""

    conditions: tuple[tuple[str, Callable[[float, float], bool], float], ...]
    """Each with a quantity, its comparison and the number to compare with."""

    @classmethod
    def read(cls, win: Any) -> WinRule:
        """Returns the rule under `win` in a recipe. Raises `DomainError` if it is not understood;
        no part of it ever runs as code."""
        if not isinstance(win, Mapping) or not win:
            raise DomainError(f"win is {win!r:.80}: write a mapping of {_GRAMMAR}")
        return cls(tuple(_condition(name, wanted) for name, wanted in win.items()))

    @classmethod
    def at(cls, threshold: Any) -> WinRule:
        """Returns the rule that a return of at least `threshold` wins. Raises `DomainError`."""
        return cls((("return", operator.ge, _number("win_at", threshold)),))

    def reached(self, score: float) -> bool:
        """Returns whether a single score wins, taken as the whole return of an episode."""
        return self.holds(EpisodeEnd(score, score, 1, True))

    def holds(self, end: EpisodeEnd) -> bool:
        """Returns whether the episode was won. Raises `BadReward` for a missing quantity."""
        return all(
            compare(as_good(_measured(name, end), value), value)
            for name, compare, value in self.conditions
        )


@dataclass(frozen=True, slots=True)
class RewardRange:
    """The returns that an environment promises."""

    lowest: float = -math.inf
    highest: float = math.inf

    @classmethod
    def read(cls, bounds: Any) -> RewardRange:
        """Returns the range in a recipe; None: any finite one. Raises `DomainError`."""
        if bounds is None:
            return cls()
        try:
            lowest, highest = iter(bounds if not isinstance(bounds, str) else ())
        except (TypeError, ValueError):
            raise DomainError("reward_range must be two numbers, such as [0, 1]") from None
        lowest, highest = _number("reward_range", lowest), _number("reward_range", highest)
        if not lowest < highest:
            raise DomainError(f"reward_range is [{lowest:g}, {highest:g}]: write the lower first")
        return cls(lowest, highest)

    def check(self, total: float) -> None:
        """Raises `BadReward` if the return of an episode is outside the range."""
        bounded = as_good(as_good(total, self.lowest), self.highest)
        if not self.lowest <= bounded <= self.highest:
            raise BadReward(
                f"its rewards add up to {total:g}, outside of [{self.lowest:g}, {self.highest:g}]: "
                "fix the environment, or domain.options.reward_range"
            )


def reward_of(value: Any) -> float:
    """Returns an environment's reward as a number. Raises `BadReward` for anything else: text, NaN,
    infinity."""
    value = value.item() if hasattr(value, "item") else value  # scalars of numpy and torch
    try:
        reward = float(value) if isinstance(value, numbers.Real | Decimal) else math.nan
    except (OverflowError, ValueError):
        reward = math.nan
    if not math.isfinite(reward):
        raise BadReward(f"its reward is {value!r:.80}: the environment must give finite numbers")
    return reward


def _condition(name: Any, wanted: Any) -> tuple[str, Callable[[float, float], bool], float]:
    if name not in _QUANTITIES and not (isinstance(name, str) and re.fullmatch(r"info\.\S+", name)):
        raise DomainError(f"win names {name!r:.80}: write {_GRAMMAR}")
    if isinstance(wanted, bool | int | float):
        return name, operator.eq, _number(f"win.{name}", float(wanted))
    parts = _CONDITION.fullmatch(wanted) if isinstance(wanted, str) else None
    if parts is None:
        raise DomainError(f"win.{name} is {wanted!r:.80}: write {_GRAMMAR}")
    return name, _COMPARISONS[parts[1]], _number(f"win.{name}", parts[2])


def _number(place: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise DomainError(f"{place} compares with {value!r:.80}: write a number")
    return number


def _measured(name: str, end: EpisodeEnd) -> float:
    known = {
        "return": end.total,
        "reward": end.last,
        "steps": end.steps,
        "terminated": end.terminated,
    }
    if name in known:
        return float(known[name])
    key = name.removeprefix("info.")
    if key not in end.info:
        said = ", ".join(map(str, end.info)) or "nothing"
        raise BadReward(f"its last step has no info {key!r}, but {said:.120}: fix win in options")
    try:
        return reward_of(end.info[key])
    except BadReward:
        raise BadReward(f"its info {key!r} is {end.info[key]!r:.80}, and no number") from None
