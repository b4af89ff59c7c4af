"""What benchmarks/theory.py measures."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from helpers.benchmark_module import load_benchmark
from rlanything.evaluation.diagnostics import reward_precision


@pytest.fixture(scope="module")
def theory() -> ModuleType:
    return load_benchmark("theory")


def judged(theory: ModuleType, chances: np.ndarray, outcomes: np.ndarray, m: int):
    """Steps whose judgements are +1 with the given chances [steps]."""
    rng = np.random.default_rng(0)
    scores = np.where(rng.random((len(chances), m)) < chances[:, None], 1, -1)
    labels = np.where(chances > 0.5, 1, -1)
    return theory.Judged(scores, outcomes, labels, np.arange(len(outcomes)) // 10)


OUTCOMES = np.repeat([1, -1], 3000)


def test_independent_judgements_are_found_independent(theory: ModuleType) -> None:
    found = judged(theory, np.where(OUTCOMES == 1, 0.7, 0.4), OUTCOMES, 4)
    assert theory.correlation(found, False) == pytest.approx(0, abs=0.02)
    observed = reward_precision(found.scores, found.outcomes)
    assert theory.if_independent(found) == pytest.approx(observed, abs=0.01)


def test_steps_of_two_kinds_are_found_dependent_until_the_kind_is_known(
    theory: ModuleType,
) -> None:
    good = np.random.default_rng(1).random(len(OUTCOMES)) < np.where(OUTCOMES == 1, 0.7, 0.4)
    found = judged(theory, np.where(good, 0.9, 0.1), OUTCOMES, 8)
    # The variance of a chance of 0.1 or 0.9 over that of a score, which is nearly a coin.
    assert theory.correlation(found, False) == pytest.approx(0.6, abs=0.05)
    assert theory.correlation(found, True) == pytest.approx(0, abs=0.02)
    assert theory.if_independent(found) > reward_precision(found.scores, found.outcomes)


def test_judgements_that_repeat_one_another_are_worth_one(theory: ModuleType) -> None:
    assert theory.effective(5, 1.0) == 1
    assert theory.effective(5, 0.0) == 5
    one = judged(theory, np.full(6000, 0.5), OUTCOMES, 1)
    same = theory.Judged(np.repeat(one.scores, 5, axis=1), one.outcomes, one.labels, one.groups)
    assert theory.correlation(same, False) == pytest.approx(1)
