"""Measures of benchmarks/ten_times.py: repeats, drift, tasks told apart, cycles."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from helpers.benchmark_module import load_benchmark
from rlanything.records import Task

pytest.importorskip("rlanything_physics")


@pytest.fixture(scope="module")
def ten_times() -> ModuleType:
    return load_benchmark("ten_times")


def long_run(module: ModuleType, events: list, tasks: dict, accepted: tuple[str, ...] = ()):
    """A run of 56 iterations with these events and tasks (parameters and text by id)."""
    return module.LongRun(
        Path("run"),
        {56: {}},
        events,
        {task: np.array(values) for task, (values, _) in tasks.items()},
        {task: text for task, (_, text) in tasks.items()},
        [Task(task, tasks[task][1]) for task in accepted],
    )


def test_repeats_and_drift_follow_the_events_of_each_slot(ten_times: ModuleType) -> None:
    tasks = {
        "a": ([0.0, 0.0], "root a"),
        "b": ([0.0, 0.0], "root b"),
        "a@1": ([0.5, 0.5], "far"),
        "a@2": ([0.5, 0.5], "far"),
        "b@2": ([1.0, 0.0], "far"),
    }
    events = [
        (1, "a", "proposed", "a@1"),
        (2, "a", "accepted", "a@1"),
        (2, "a", "proposed", "a@2"),
        (2, "b", "proposed", "b@2"),  # another slot: not a repeat
        (3, "b", "accepted", "b@2"),
        (30, "a", "rejected", "a@2"),
    ]
    run = long_run(ten_times, events, tasks)
    assert run.repeats == [(1, False), (2, True), (2, False)]
    assert run.repeated(1, 2) == 0.5
    assert [run.drift(iteration) for iteration in (1, 2, 3)] == [0.0, 0.25, 0.5]
    assert run.spans() == [(0, 28), (28, 56)]
    assert [run.count("accepted", *span) for span in run.spans()] == [2, 0]


def test_accepted_tasks_are_told_apart_only_if_their_parameters_differ(
    ten_times: ModuleType,
) -> None:
    rng = np.random.default_rng(0)
    for shift, low, high in ((0.0, 0.35, 0.65), (0.6, 0.95, 1.0)):
        drawn = {f"r{i}": (rng.random(3) * 0.4, "root") for i in range(120)}
        drawn |= {f"r{i}@1": (rng.random(3) * 0.4 + shift, "new") for i in range(120)}
        run = long_run(ten_times, [], drawn, tuple(task for task in drawn if "@" in task))
        assert low <= ten_times.told_apart(run, rng) <= high


def test_a_cycle_is_found_in_noise_and_none_where_there_is_only_noise(
    ten_times: ModuleType,
) -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(size=280)
    for i in range(1, 280):
        noise[i] += 0.7 * noise[i - 1]
    assert ten_times.strongest(noise, rng)[1] > 0.05
    period, chance = ten_times.strongest(noise + 3 * np.sin(np.arange(280) * np.pi / 10), rng)
    assert period == pytest.approx(20)
    assert chance < 0.01
