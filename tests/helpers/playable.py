"""Generated games for tests."""

from __future__ import annotations

from rlanything.domains.base import DomainError
from rlanything_alfworld.game import Game
from rlanything_alfworld.generator import generate
from rlanything_alfworld.goal import LOOK

BEDROOM, KITCHEN, BATHROOM = "FloorPlan301", "FloorPlan5", "FloorPlan402"


def games(kind: str, count: int, room: str | None = None) -> list[Game]:
    """The first games of a task type that a room allows."""
    games: list[Game] = []
    for seed in range(1000):
        if len(games) == count:
            break
        try:
            games.append(generate(room or (BEDROOM if kind == LOOK else KITCHEN), seed, kind))
        except DomainError:
            continue
    assert len(games) == count
    return games
