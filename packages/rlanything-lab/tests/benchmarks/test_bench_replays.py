"""Tests of benchmarks/replays.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from helpers.benchmark_module import load_benchmark
from helpers.guess import train_once
from helpers.scripted import judged


@pytest.fixture(scope="module")
def replays() -> ModuleType:
    return load_benchmark("replays")


def test_a_signal_that_knows_the_gain_agrees_with_it_but_for_noise(replays: ModuleType) -> None:
    rng = np.random.default_rng(0)
    worth = rng.normal(0, 0.2, 4000)
    measured = worth + rng.normal(0, 0.1, 4000)
    steps = [replays.MeasuredStep(n, 0, 0.5, float(gain), 0.1) for n, gain in enumerate(measured)]
    groups = [f"task {n % 40}" for n in range(4000)]
    known = {(n, 0): float(value) for n, value in enumerate(worth)}
    found = replays._agreement(steps, groups, known)
    assert found["correlation with A"] == pytest.approx(2 / 5**0.5, abs=0.02)
    assert found["... without the replays' noise"] == pytest.approx(1, abs=0.03)
    assert found["right sign where A is clear"] > 0.95
    nothing = replays._agreement(steps, groups, dict.fromkeys(known, 1.0))
    assert nothing["correlation with A"] == 0


def test_the_page_compares_every_signal_before_and_after_training(
    replays: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, page = train_once(tmp_path / "run"), tmp_path / "page.md"
    small = ("--tasks", "3", "--steps", "6", "--replays", "3", "--out", str(page))
    monkeypatch.setattr("sys.argv", ["replays.py", str(run), *small])
    replays.main()
    before, after = page.read_text(encoding="utf-8").split("## After training")
    for name in (
        "outcome",
        "outcome, same state (GiGPO)",
        "untrained judge",
        "trained judge, Eq. 1",
    ):
        assert f"| {name} | " in before
        assert f"| {name} | " in after
    assert "trained against untrained policy" not in before
    assert "trained against untrained policy" in after
    assert "steps in lost episodes that gain" in before


def test_grades_are_rounded_to_the_nearest_of_a_few(replays: ModuleType) -> None:
    one = judged("episode", [[1]])
    answers = [replace(one.judgements[0][0], grade=grade) for grade in (-1, 0, 2, 3, 5, 8, 10)]
    one = replace(one, judgements=(tuple(answers),))

    def grades(count: int) -> tuple[int, ...]:
        return replays.rounded([one], count)[0].grades[0]

    assert grades(11) == (-1, 0, 2, 3, 5, 8, 10)
    assert grades(3) == (-1, 0, 0, 5, 5, 10, 10)
    assert grades(2) == (-1, 0, 0, 0, 10, 10, 10)
