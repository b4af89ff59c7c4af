"""Where things are in a checkout."""

from __future__ import annotations

from pathlib import Path

from rlanything.config.shipped import shipped_files

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
SOURCE = ROOT / "src"
PACKAGES = ROOT / "packages"
TINY = shipped_files()["tiny"]
