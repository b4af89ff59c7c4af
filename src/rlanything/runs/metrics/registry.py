"""The registry of metrics: functions of a record, with the meaning of every number they return.

A metric of your own is a function under `@metrics(...)` in any module that is imported before the
run, or in one that a package names as an entry point of the group `rlanything.metrics`. The store,
the trackers, the report and `docs/metrics.md` then have it, without another line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar

from rlanything.runs.results import EvaluationRecord, IterationRecord, Numbers

PLACEHOLDERS = dict.fromkeys(("ROLE", "JUDGE", "SPLIT"), r"[\w-]+")
"""Words in a name that stand for several."""

Record = TypeVar("Record", IterationRecord, EvaluationRecord)
Function: TypeAlias = Callable[[Any], Numbers]


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a run leaves under a name, and what it means."""

    name: str
    """`room/quantity`; ROLE, JUDGE and SPLIT in it stand for several."""
    unit: str
    meaning: str

    def matches(self, name: str) -> bool:
        """Returns whether it is the metric of that name."""
        pattern = re.escape(self.name)
        for word, several in PLACEHOLDERS.items():
            pattern = pattern.replace(word, several)
        return re.fullmatch(pattern, name) is not None


@dataclass(frozen=True, slots=True)
class MetricSet:
    """A function that measures, and what it declares."""

    of: type[IterationRecord] | type[EvaluationRecord]
    section: str
    note: str
    metrics: tuple[Metric, ...]
    function: Function

    @property
    def origin(self) -> str:
        """`module.function`, where it comes from."""
        return f"{self.function.__module__}.{self.function.__qualname__}"


REGISTERED: dict[str, MetricSet] = {}
"""By origin, in the order of registration."""


def metrics(
    of: type[Record], section: str, names: Mapping[str, tuple[str, str]], note: str = ""
) -> Callable[[Callable[[Record], Numbers]], Callable[[Record], Numbers]]:
    """Registers a function of a record that returns metrics by name.

    `of`: what it measures, `IterationRecord` or `EvaluationRecord`. `names`: unit and meaning of
    everything it may return; a name without a number (None) is null in the store. `section` and
    `note`: where `docs/metrics.md` lists it, and the text under that heading. Raises ValueError for
    a name that another function has declared; the same function again takes its own place."""

    def register(function: Callable[[Record], Numbers]) -> Callable[[Record], Numbers]:
        declared = tuple(Metric(name, *said) for name, said in names.items())
        new = MetricSet(of, section, note, declared, function)
        for other in REGISTERED.values():
            taken = {metric.name for metric in other.metrics} & names.keys()
            if taken and other.origin != new.origin:
                raise ValueError(f"metric {min(taken)} is {other.origin}'s: choose another name")
        REGISTERED[new.origin] = new
        return function

    return register


@cache
def find_metric(name: str) -> Metric:
    """Returns the metric of a name. Raises KeyError where none is registered."""
    for declared in REGISTERED.values():
        for metric in declared.metrics:
            if metric.matches(name):
                return metric
    raise KeyError(f"no metric is called {name}; docs/metrics.md lists them")
