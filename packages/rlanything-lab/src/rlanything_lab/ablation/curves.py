"""The metrics of every iteration of every run, as one table."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlanything.runs.store.store import Store

CURVES = (
    "rollouts/success",
    "tasks/active_accuracy",
    "tasks/accepted",
    "judge/balanced_process_accuracy",
    "judge/ut",
    "judge/detect",
    "judge/positive_rate",
    "policy/kl",
    "policy/entropy",
    "policy/reference_kl",
    "judge/kl",
    "judge/entropy",
    "judge/reference_kl",
)
"""Metrics that show the progress of an iteration, if a run has them."""
HELD_OUT = ("balanced_process_accuracy", "process_accuracy", "outcome_accuracy", "ut", "detect")


def curve_names(splits: Sequence[str]) -> tuple[str, ...]:
    """Returns the metrics to follow, those of evaluations last."""
    return (
        *CURVES,
        *(f"evaluation/{split}/success" for split in splits),
        *(f"evaluation/judge/{measure}" for measure in HELD_OUT),
    )


def metric(store: Store, name: str) -> dict[int, float]:
    """Returns a metric by iteration, for the iterations that measured it."""
    query = "SELECT iteration, value FROM metrics WHERE name = ? ORDER BY iteration"
    return {iteration: value for iteration, value in store.query(query, name) if value is not None}


def write_curves(
    path: Path, runs: Mapping[tuple[str, ...], Store], heads: Sequence[str], splits: Sequence[str]
) -> None:
    """Writes a CSV file with a line for each run and iteration. `runs`: by the values of the
    columns `heads`, which identify them. Metrics that no run has get no column."""
    wanted = curve_names(splits)
    values = {run: {name: metric(store, name) for name in wanted} for run, store in runs.items()}
    names = [name for name in wanted if any(curves[name] for curves in values.values())]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*heads, "iteration", *names])
        for run, curves in values.items():
            for iteration in sorted(set().union(*(curves[name] for name in names))):
                row = [curves[name].get(iteration) for name in names]
                cells = ["" if value is None else f"{value:.5g}" for value in row]
                writer.writerow([*run, iteration, *cells])


def mean_curve(stores: Sequence[Store], name: str) -> dict[int, float]:
    """Returns the mean over runs of a metric, at the iterations where all of them have it."""
    curves = [metric(store, name) for store in stores]
    shared = set.intersection(*(set(curve) for curve in curves)) if curves else set[int]()
    return {i: statistics.fmean(curve[i] for curve in curves) for i in sorted(shared)}
