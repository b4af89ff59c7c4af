"""Judges before and after, put in a table over seeds."""

from __future__ import annotations

from helpers.benchmark_module import load_benchmark

JUDGES = load_benchmark("judges")


def test_a_line_for_each_measure_and_source_pairs_before_and_after_by_seed() -> None:
    before = [{("Process Acc", "oracle"): 0.5, ("Outcome Acc", "outcome"): x} for x in (0.2, 0.6)]
    after = [{("Process Acc", "oracle"): x, ("Outcome Acc", "outcome"): 0.4} for x in (0.6, 0.62)]
    assert JUDGES.rows([*zip(before, after, strict=True)]) == [
        "| Process Acc, labels of the oracle | 50.0% | 61.0% | +11.0 points [-1.7, +23.7] |",
        "| Outcome Acc | 40.0% | 40.0% | +0.0 points [-254.1, +254.1] |",
    ]


def test_what_is_no_accuracy_has_no_line() -> None:
    assert JUDGES.rows([({("UT", "programs"): 0.1}, {("UT", "programs"): 0.2})]) == []
