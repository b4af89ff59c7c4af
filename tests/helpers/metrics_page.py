"""The metrics that are registered."""

from __future__ import annotations

from rlanything.runs.metrics.measuring import REGISTERED

DECLARED = [metric for one in REGISTERED.values() for metric in one.metrics]


def unlisted(names: set[str]) -> set[str]:
    """Returns those that no function declares, and so no page lists."""
    return {name for name in names if not any(metric.matches(name) for metric in DECLARED)}
