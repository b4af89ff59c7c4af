"""Environments of other libraries; `make test-ecosystems` plays them in an environment of its
own."""

from __future__ import annotations

import importlib.util

names = ("mcp", "minigrid", "openenv", "reasoning_gym", "textarena")
missing = [name for name in names if importlib.util.find_spec(name) is None]
if missing:
    collect_ignore_glob = ["test_*.py"]
