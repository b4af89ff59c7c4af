"""Warnings about a run, each given once, at the iteration at which its rule first holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlanything.runs.metrics.measuring import read
from rlanything.runs.results import Numbers
from rlanything.runs.rules import RULES


@dataclass(frozen=True, slots=True)
class Check:
    """A warning that was given."""

    iteration: int
    """At which it first held."""
    name: str
    message: str
    """The measurement, in words."""
    remedy: str
    """The settings to try."""

    def line(self) -> str:
        return f"warning, {self.name}: {self.message}; {self.remedy}"


def run_checks(history: Mapping[int, Numbers]) -> list[Check]:
    """Returns each warning once, in the order in which the rules first held; `history`: the metrics
    by iteration."""
    past: list[Numbers] = []
    checks: dict[str, Check] = {}
    for iteration in sorted(history):
        if read(history[iteration], "rollouts/episodes") is None:
            continue  # evaluated before training
        past.append(history[iteration])
        for name, rule in RULES.items():
            if name not in checks and (message := rule.check(past)) is not None:
                checks[name] = Check(iteration, name, message, rule.remedy)
    return list(checks.values())
