"""The closing lines: what a run says of itself, good news or bad."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlanything.curriculum import Pool
from rlanything.evaluation.diagnostics import Diagnostics, diagnose
from rlanything.evaluation.intervals import Interval
from rlanything.evaluation.success import Evaluation
from rlanything.records import Task, Trajectory
from rlanything.runs.summary import closing_lines

JUDGED = diagnose([[1], [1], [-1], [-1]], [1, 1, -1, -1], [1, -1, 1, -1], 1.0)
BETTER = Interval(0.07, 0.02, 0.12)


def evaluation(won: list[bool], split: str = "in_domain") -> Evaluation:
    trajectories = tuple(
        Trajectory(f"{split}/{i}", Task(str(i), "", "", {}), (), 1 if each else -1)
        for i, each in enumerate(won)
    )
    return Evaluation(split, trajectories, 0, 1.0)


def closing(
    before: list[bool],
    after: list[bool],
    judged: Diagnostics = JUDGED,
    gain: Interval | None = BETTER,
) -> list[str]:
    pair = (evaluation(before), evaluation(after))
    pool = Pool([Task("root", "", "", {})], 0.2, 0.8)
    return closing_lines(Path("runs/x"), pool, [pair], (JUDGED, judged), gain, 60.0)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([False] * 40, [True] * 30 + [False] * 10, "improved"),
        ([True] * 40, [True] * 10 + [False] * 30, "got worse"),
        ([True, False] * 20, [False, True] * 20, "not clearly improved (the 95% interval holds 0)"),
    ],
)
def test_the_policys_line_says_plainly_whether_it_improved(before, after, verdict):
    line = closing(before, after)[0]
    assert line.startswith("policy, in_domain: ")
    assert line.endswith(f"], {verdict}")


def test_the_judges_line_gives_accuracy_gain_and_the_share_of_its_answers():
    line = closing([True], [True])[1]
    assert line == (
        "judge, balanced Process Acc: 50.0% -> 50.0%: +7.0 points [+2.0, +12.0], improved; "
        "says +1 on 50.0% -> 50.0%"
    )


@pytest.mark.parametrize(("rate", "collapsed"), [(0.05, True), (0.1, False), (0.95, True)])
def test_a_judge_that_gives_one_answer_only_is_called_collapsed(rate, collapsed):
    line = closing([True], [True], replace(JUDGED, positive_rate=rate))[1]
    assert ("collapsed to one answer" in line) == collapsed


def test_a_judge_without_ground_truth_is_not_spoken_of():
    assert not any(line.startswith("judge") for line in closing([True], [True], gain=None))
