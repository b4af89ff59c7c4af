"""Metrics of a record, from every registered function; and a metric read by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rlanything.plugins import PluginError, load_plugin, plugin_names
from rlanything.runs.metrics import evaluation, iteration
from rlanything.runs.metrics.registry import REGISTERED, Record, find_metric
from rlanything.runs.results import Numbers

BUILT_IN = (iteration, evaluation)
"""Importing them registered their functions."""


class Meter:
    """Measures records. A function that fails is reported once and its metrics are left out."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        """Imports the metrics of other packages; `warn` gets one line for each failure."""
        self._warn = warn
        self._failed: set[str] = set()
        for name in plugin_names("metric"):
            try:
                load_plugin("metric", name)
            except PluginError as error:
                warn(str(error))

    def measure(self, record: Record) -> Record:
        """Returns the record with its metrics."""
        measured: dict[str, float | None] = {}
        for metrics in list(REGISTERED.values()):
            if isinstance(record, metrics.of):
                try:
                    numbers = metrics.function(record)
                    # Python numbers: the store does not accept numpy's.
                    measured |= {
                        name: None if value is None else float(value)
                        for name, value in numbers.items()
                    }
                except Exception as error:
                    self._report(metrics.origin, error)
        return replace(record, metrics=measured)

    def _report(self, origin: str, error: Exception) -> None:
        if origin not in self._failed:
            self._failed.add(origin)
            self._warn(
                f"metrics of {origin} are left out: {type(error).__name__}: {error}; fix "
                "that function, or leave it out"
            )


def read(row: Numbers, name: str) -> float | None:
    """Returns a metric of an iteration; None if it was not measured. Raises KeyError for an
    unregistered name, so that a typo is not mistaken for a missing metric."""
    find_metric(name)
    return row.get(name)
