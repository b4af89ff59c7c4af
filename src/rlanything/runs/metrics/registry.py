"""The registry of metrics: functions of a record, with unit and meaning of every number they
return.

Add your own metric as a function under `@metrics(...)` in any module that is imported before the
run, or in an entry point of the group `rlanything.metrics`. The store, the trackers, the report and
`docs/metrics.md` then include it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar

from rlanything.runs.results import EvaluationRecord, IterationRecord, Numbers

PLACEHOLDERS = {
    **dict.fromkeys(("ROLE", "JUDGE", "WORLD"), r"[\w-]+"),
    "SPLIT": r"[\w-]+(?:/[\w-]+)?",
}
"""Words in metric names that stand for several values; a split may begin with its world."""

Record = TypeVar("Record", IterationRecord, EvaluationRecord)
Function: TypeAlias = Callable[[Any], Numbers]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's name, unit and meaning."""

    name: str
    """`group/quantity`; ROLE, JUDGE, SPLIT and WORLD stand for several values."""
    unit: str
    meaning: str

    def matches(self, name: str) -> bool:
        """Returns whether a concrete name is of this metric."""
        pattern = re.escape(self.name)
        for word, several in PLACEHOLDERS.items():
            pattern = pattern.replace(word, several)
        return re.fullmatch(pattern, name) is not None


@dataclass(frozen=True, slots=True)
class MetricSet:
    """A function that measures, with the metrics it declares."""

    of: type[IterationRecord] | type[EvaluationRecord]
    section: str
    note: str
    metrics: tuple[Metric, ...]
    function: Function

    @property
    def origin(self) -> str:
        """`module.function` of the function."""
        return f"{self.function.__module__}.{self.function.__qualname__}"


REGISTERED: dict[str, MetricSet] = {}
"""Functions by origin, in the order of registration."""


def metrics(
    of: type[Record], section: str, names: Mapping[str, tuple[str, str]], note: str = ""
) -> Callable[[Callable[[Record], Numbers]], Callable[[Record], Numbers]]:
    """Registers a function of a record that returns metrics by name.

    `of`: type of its argument, `IterationRecord` or `EvaluationRecord`. `names`: unit and meaning
    of everything it may return; None is null in the store. `section` and `note`: heading in
    `docs/metrics.md`, and the text under it. Raises ValueError for a name that another function has
    declared; registering a function again replaces it."""

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
    """Returns the metric of a name. Raises KeyError if none is registered."""
    for declared in REGISTERED.values():
        for metric in declared.metrics:
            if metric.matches(name):
                return metric
    raise KeyError(f"no metric is called {name}; docs/metrics.md lists them")
