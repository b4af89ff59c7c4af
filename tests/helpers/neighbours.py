"""Tests that need a neighbour: skipped where the core is installed alone."""

from __future__ import annotations

import pytest

from rlanything.plugins import plugin_names


def needs_plugin(kind: str, name: str) -> pytest.MarkDecorator:
    """Returns the mark of tests that need a neighbour's plug-in, such as the domain `agent`."""
    return pytest.mark.skipif(
        name not in plugin_names(kind), reason=f"{kind} {name} is not installed"
    )


JUDGE_EVAL = pytest.param("judge-eval", marks=needs_plugin("command", "judge-eval"))
"""The command of a neighbour, in a list of commands that read runs."""
