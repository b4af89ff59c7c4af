"""Agents of others' libraries; `make test-agents` runs them in an environment of their own."""

from __future__ import annotations

import importlib.util

missing = [
    name
    for name in ("smolagents", "agents", "inspect_ai")
    if importlib.util.find_spec(name) is None
]
if missing:
    collect_ignore_glob = ["test_*.py"]
