"""What benchmarks/signals.py measures."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from helpers.benchmark_module import load_benchmark
from helpers.paths import TINY
from helpers.report_runs import make_run

CANDIDATES = "SELECT task, iteration FROM groups WHERE candidate"


@pytest.fixture(scope="module")
def signals() -> ModuleType:
    return load_benchmark("signals")


def test_only_what_differs_within_a_place_counts(signals: ModuleType) -> None:
    places = [(0,), (0,), (1,), (1,)]
    assert signals.within([(0, 1), (1, 2), (10, 2), (11, 3)], places) == pytest.approx(1)
    assert signals.within([(0, 2), (1, 1), (10, 12), (11, 11)], places) == pytest.approx(-1)
    assert np.isnan(signals.within([(0, 1), (0, 2), (10, 2), (10, 3)], places))


def test_the_page_has_every_arm_and_every_setting(signals: ModuleType, tmp_path: Path) -> None:
    for arm in ("one", "two"):
        (tmp_path / arm).mkdir()
        for seed in (0, 1):
            run = make_run(tmp_path / arm / f"seed-{seed}", 3 + seed)
            shutil.copy(TINY, run / "recipe.yaml")
    make_run(tmp_path / "two" / "seed-2", 0)
    text = signals.page([tmp_path / "one", tmp_path / "two"])
    assert "seed-0, seed-1." in " ".join(text.split())
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines()}
    assert {"one", "two", *signals.POLICY, *signals.JUDGE} <= rows.keys()
    assert {
        "right on 60% of the steps",
        "right on 100% of the steps, all tasks train",
    } <= rows.keys()
    assert {"20% of the steps unreadable", "50% of the judgements unreadable"} <= rows.keys()
    with_outcome = rows["outcome alone"].split(" | ")[3]
    assert float(with_outcome.split()[0]) > 0.9


def test_only_the_iterations_asked_for_are_read(signals: ModuleType, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 3)
    later = {m.iteration for group in signals.read(run, (2, 3)) for m in group.members}
    assert later == {2, 3}
    assert len(signals.read(run, (1, 1))) < len(signals.read(run))


def test_rollouts_of_rejected_rewrites_train_nobody_and_are_left_out(
    signals: ModuleType, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", 3)
    with closing(sqlite3.connect(run / "run.sqlite")) as db:
        met = db.execute(CANDIDATES).fetchall()
        assert met
        db.execute("UPDATE slot_events SET kind = 'rejected' WHERE kind = 'accepted'")
        db.commit()

    def read() -> set[tuple[str, int]]:
        return {(m.task, m.iteration) for group in signals.read(run) for m in group.members}

    assert not read() & {*met}
    with closing(sqlite3.connect(run / "run.sqlite")) as db:
        db.execute("UPDATE slot_events SET kind = 'accepted' WHERE kind = 'rejected'")
        db.commit()
    assert {*met} <= read()


def test_two_arms_of_one_name_are_refused(signals: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="the same name"):
        signals.page([tmp_path / "one" / "arm", tmp_path / "two" / "arm"])


def test_iterations_that_no_run_has_are_refused_in_one_line(
    signals: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "arm").mkdir()
    make_run(tmp_path / "arm" / "seed-0", 3)
    with pytest.raises(SystemExit, match="--iterations: some of these runs have no rollouts"):
        signals.page([tmp_path / "arm"], (9, 12))


def test_a_judge_that_is_made_up_is_right_as_often_as_it_says(
    signals: ModuleType, tmp_path: Path
) -> None:
    groups = signals.read(make_run(tmp_path / "run", 3))
    labels = [[s.label or 0 for s in m.steps] for g in groups for m in g.members]
    assert any(label for steps in labels for label in steps)

    def said(right: float) -> list[list[int]]:
        rng = random.Random(0)
        return [
            [score for (score,) in steps]
            for group in groups
            for steps in signals.judged(group, right, rng)
        ]

    assert said(1.0) == labels
    assert said(0.0) == [[-label for label in steps] for steps in labels]


def test_runs_without_a_seed_in_common_are_refused(signals: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    make_run(tmp_path / "one" / "seed-0", 0)
    with pytest.raises(SystemExit, match="no finished run"):
        signals.page([tmp_path / "one"])
