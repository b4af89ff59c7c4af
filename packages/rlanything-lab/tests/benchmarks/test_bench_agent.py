"""The benchmark of the endpoint compares two runs that sample the same."""

from __future__ import annotations

import pytest

from helpers.benchmark_module import load_benchmark

bench = load_benchmark("agent")


def test_both_ways_sample_the_same_tokens_and_the_page_says_what_they_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = {"loop.tasks": 2, "loop.tasks_per_iteration": 2, "loop.rollouts_per_task": 2}
    monkeypatch.setattr(bench, "OVERRIDES", {**bench.OVERRIDES, **small})
    measured = list(bench.turns(rounds=1, workers=0))
    [taken] = measured
    assert set(taken) == {"in process", "through the endpoint"}
    inside, through = (taken[way] for way in bench.WAYS)
    assert inside["rollouts/steps"] == through["rollouts/steps"] > 0
    assert inside["seconds"] > 0
    client = bench.client_alone(requests=5)
    assert client > 0
    text = bench.page(measured, client, "python benchmarks/agent.py")
    assert "an iteration takes" in text
    assert f"| in process | {inside['seconds']:.2f} |" in text
