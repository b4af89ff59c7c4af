"""Where things are in a checkout."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
SOURCE = ROOT / "src"
RECIPES = ROOT / "recipes"
TINY = RECIPES / "tiny.yaml"
