"""What AlfWorld's tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def engine():
    """One engine for all tests: each costs memory."""
    pytest.importorskip("fast_downward", reason='pip install "rlanything[alfworld]"')
    from rlanything_alfworld.game_engine import GameEngine

    engine = GameEngine()
    yield engine
    engine.close()
