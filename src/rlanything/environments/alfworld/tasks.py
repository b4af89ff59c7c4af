"""Tasks as small JSON, and the games they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlanything.environments.alfworld.game import Game
from rlanything.environments.alfworld.generator import game_of
from rlanything.environments.alfworld.goal import Goal
from rlanything.environments.alfworld.scene import ScenePlan


def load_game(data: Mapping[str, Any]) -> Game:
    """The game that a task's `data` describes."""
    return game_of(ScenePlan.from_json(data["scene"]), Goal.from_json(data["goal"]))
