"""The engine as AlfWorld ships it, to compare ours with."""

from __future__ import annotations

import os
import tempfile
from typing import Any

# Importing alfworld creates the folder that this names, by default in the user's home.
os.environ.setdefault("ALFWORLD_DATA", tempfile.gettempdir())

from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
from textworld import EnvInfos
from textworld.envs.pddl.pddl import PddlEnv

Shown = tuple[str, tuple[str, ...], bool]
"""Text, admissible commands, won."""


class StockEngine:
    def __init__(self) -> None:
        infos = EnvInfos(won=True, admissible_commands=True)
        self._env: Any = AlfredDemangler(PddlEnv(infos), shuffle=False)

    def load(self, game: dict[str, Any]) -> None:
        self._env.load(game)

    def reset(self) -> Shown:
        return self._shown(self._env.reset())

    def step(self, command: str) -> Shown:
        return self._shown(self._env.step(command)[0])

    def _shown(self, state: Any) -> Shown:
        return state.feedback, tuple(state.admissible_commands), state.won
