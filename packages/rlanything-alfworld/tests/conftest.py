"""Fixtures that AlfWorld's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlanything_alfworld.game_engine import GameEngine


@pytest.fixture(scope="session")
def engine() -> Iterator[GameEngine]:
    """One engine for all tests: each costs memory."""
    engine = GameEngine()
    yield engine
    engine.close()
