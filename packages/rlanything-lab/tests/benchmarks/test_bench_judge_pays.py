"""Differences put together over settings."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest

from helpers.benchmark_module import load_benchmark

FEW, PAYS = load_benchmark("few"), load_benchmark("judge_pays")
DIFFERENCES = {"0": 0.02, "1": 0.05, "2": -0.01, "3": 0.03}


def test_of_one_setting_the_interval_is_students() -> None:
    expected = astuple(FEW.mean_of_few([*DIFFERENCES.values()]))
    assert astuple(PAYS.over_settings({"a": DIFFERENCES})) == pytest.approx(expected)


def test_the_same_runs_in_another_setting_say_nothing_new() -> None:
    once, twice = (dict.fromkeys(names, DIFFERENCES) for names in ("a", "ab"))
    expected = astuple(PAYS.over_settings(once))
    assert astuple(PAYS.over_settings(twice)) == pytest.approx(expected)


def test_intervals_hold_the_truth_where_few_seeds_are_in_every_setting() -> None:
    rng = np.random.default_rng(0)

    def drawn(seeds: np.ndarray) -> dict[str, float]:
        return {str(seed): float(common[seed] + rng.normal()) for seed in seeds}

    held = 0
    for _ in range(400):
        common, every, first = rng.normal(size=20), np.arange(20), np.arange(5)
        settings = {"few": drawn(every)} | {name: drawn(first) for name in "abcd"}
        found = PAYS.over_settings(settings)
        held += found.low <= 0 <= found.high
    assert held >= 0.93 * 400


@pytest.mark.parametrize("split", PAYS.SPLITS)
@pytest.mark.parametrize("setting", PAYS.SETTINGS)
def test_every_page_has_five_seeds_of_every_question(setting: str, split: str) -> None:
    found, whole = (
        PAYS.successes(f"judge-pays-{setting}", split),
        PAYS.successes("judge-pays-everything", split),
    )
    pairs = [(found[one], found[other]) for one, other in PAYS.QUESTIONS.values()]
    pairs += [(whole[PAYS.EVERYTHING[setting]], found[other]) for other in PAYS.WHOLE.values()]
    assert all(len(PAYS.differences(*pair)) >= 5 for pair in pairs)
