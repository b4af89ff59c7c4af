"""The terms of a container: what it runs, what comes back, and the reward that tests wrote."""

from __future__ import annotations

import json
import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

SHOWN_BYTES = 8000
"""Bytes of a command's output that the policy is shown; the middle of a longer one is left out."""
_REWARD_BYTES = 65536


class ContainerFault(RuntimeError):
    """A container that ended, hung or wrote too much. The policy's commands may have caused it."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The end of a command."""

    status: int
    output: str
    seconds: float
    late: bool = False
    """Whether its time limit ended it."""


@dataclass(frozen=True, slots=True)
class Tested:
    """The end of a task's tests."""

    rewards: dict[str, float] | None
    """Numbers by name, `reward` for a single one; None: the tests wrote no readable reward."""
    ran: Ran


class Container(Protocol):
    """The container of one episode."""

    @property
    def folder(self) -> str:
        """Returns the working directory."""
        ...

    def run(self, command: str, seconds: float) -> Ran:
        """Returns how a command ended. Raises `ContainerFault`."""
        ...

    def test(self, seconds: float) -> Tested:
        """Ends every process, runs the task's tests on the files that are left, and ends the
        container. Raises `ContainerFault`."""
        ...

    def close(self) -> None:
        """Ends the container and removes its files."""
        ...


def read_rewards(folder: Path) -> dict[str, float] | None:
    """Returns the rewards that tests wrote into a folder: reward.json, else reward.txt; None if
    neither holds finite numbers."""
    for name in ("reward.json", "reward.txt"):
        text = _text_of_file(folder / name)
        if text is not None:
            return _numbers(text, name.endswith("json"))
    return None


def _text_of_file(path: Path) -> str | None:
    """Returns the text of a regular file, never of what a link points to."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        plain = stat.S_ISREG(os.fstat(file).st_mode)
        return os.read(file, _REWARD_BYTES).decode("utf-8", "replace") if plain else None
    finally:
        os.close(file)


def _numbers(text: str, is_json: bool) -> dict[str, float] | None:
    try:
        value = json.loads(text) if is_json else float(text)
        named = value if isinstance(value, dict) else {"reward": value}
        rewards = {str(name): float(number) for name, number in named.items()}
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return rewards if rewards and all(map(math.isfinite, rewards.values())) else None
