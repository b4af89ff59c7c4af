"""Where things are in a checkout."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
SOURCE = ROOT / "src"
PACKAGES = ROOT / "packages"
PYTHONPATH = os.pathsep.join(map(str, [SOURCE, *sorted(PACKAGES.glob("*/src"))]))
"""Import path of every package of the checkout, for other processes."""
TINY = PACKAGES / "rlanything-alfworld/src/rlanything_alfworld/recipes/tiny.yaml"
