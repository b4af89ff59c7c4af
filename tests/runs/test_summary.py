"""The closing lines: what a run says of itself, good news or bad."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.results import evaluation_record
from rlanything.algorithm.curriculum import Pool
from rlanything.config.recipe import load_recipe
from rlanything.records import Task
from rlanything.runs.recovery import resuming_line
from rlanything.runs.store.store import Store
from rlanything.runs.summary import Gain, closing_lines, judge_fault, paired, success

HALF = {"good steps": (5, 10), "bad steps": (5, 10)}
WELL = {"good steps": (9, 10), "bad steps": (9, 10)}
"""Of one episode: balanced Process Acc 50% and 90%."""


RECIPE = load_recipe(
    {"name": "r", "domain": {"name": "text"}, "evaluation": {"splits": ["in_domain"]}}
)


def closing(
    folder: Path,
    before: Sequence[bool | None],
    after: Sequence[bool | None],
    positive: float = 0.5,
    counted: dict[str, tuple[int, int]] | None = WELL,
    unreadable: float = 0.0,
    trained: bool = True,
) -> list[str]:
    store = Store.create(folder / "run.sqlite")
    for iteration, won, counts in ((0, before, HALF), (7, after, counted)):
        outcomes = [0 if each is None else 1 if each else -1 for each in won]
        rows = [(str(i), "", outcome, 3 if outcome else 0) for i, outcome in enumerate(outcomes)]
        metrics = {
            "evaluation/judge/balanced_process_accuracy": 0.5 if iteration == 0 else 0.9,
            "evaluation/judge/positive_rate": positive,
            "evaluation/judge/unparsable_rate": unreadable,
            **({"judge/updates": 4.0} if trained else {}),
        }
        judged = {"judge": {str(i): counts for i in range(20) if counts is not None}}
        store.record_evaluation(evaluation_record(iteration, {"in_domain": rows}, judged, metrics))
    pool = Pool([Task("root", "", "", {})], 0.2, 0.8)
    lines = closing_lines(folder, store, RECIPE, pool, 60.0)
    store.close()
    return lines


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([False] * 40, [True] * 30 + [False] * 10, "improved"),
        ([True] * 40, [True] * 10 + [False] * 30, "got worse"),
        ([True, False] * 20, [False, True] * 20, "not clearly improved (the 95% interval holds 0)"),
    ],
)
def test_the_policys_line_says_plainly_whether_it_improved(tmp_path, before, after, verdict):
    line = closing(tmp_path, before, after)[0]
    assert line.startswith("policy, in_domain: ")
    assert line.endswith(f"], {verdict}")


@pytest.mark.parametrize("better", [False, True])
def test_no_verdict_rests_on_episodes_that_could_not_be_played(tmp_path, better):
    lost = [False] * 40
    hidden = [True] * 12 + [None] * 28
    line = closing(tmp_path, *((lost, hidden) if better else (hidden, lost)))[0]
    before, after = (0, 28) if better else (28, 0)
    assert line.startswith("policy, in_domain: ")
    assert line.endswith(
        f"; {before} episodes before and {after} after could not be played: the intervals include"
        " both outcomes"
    )
    assert "100.0% [17.1, 100.0]" in line
    assert ("got worse" in line) is not better
    assert ("improved" in line) is better


def test_hiding_losses_is_no_improvement(tmp_path):
    half = [True] * 20 + [False] * 20
    line = closing(tmp_path, half, [True] * 20 + [None] * 20)[0]
    assert "not clearly improved" in line


def test_the_judges_line_gives_accuracy_gain_and_the_share_of_its_answers(tmp_path):
    line = closing(tmp_path, [True], [True])[1]
    assert line == (
        "judge, balanced Process Acc: 50.0% -> 90.0%: +40.0 points [+24.7, +53.4], improved; "
        "says +1 on 50.0% -> 50.0%"
    )


def test_of_a_judge_that_was_not_trained_no_gain_is_claimed(tmp_path):
    line = closing(tmp_path, [True], [True], trained=False)[1]
    assert line.endswith("], not trained; says +1 on 50.0% -> 50.0%")


@pytest.mark.parametrize("adapts", [True, False])
def test_where_tasks_stay_as_they_are_no_rewritten_ones_are_spoken_of(tmp_path, adapts):
    curriculum = RECIPE.curriculum.model_copy(update={"adapt_tasks": adapts})
    recipe = RECIPE.model_copy(update={"curriculum": curriculum})
    store = Store.create(tmp_path / "run.sqlite")
    lines = closing_lines(tmp_path, store, recipe, Pool([Task("r", "")], 0.2, 0.8), 60.0)
    store.close()
    assert any(line.startswith("tasks: 0 candidates") for line in lines) == adapts
    assert ("rewritten tasks" in lines[-1]) == adapts
    assert lines[-1].endswith(f"eval {tmp_path} --split in_domain` plays fresh episodes")


@pytest.mark.parametrize(("rate", "collapsed"), [(0.05, True), (0.1, False), (0.95, True)])
def test_a_judge_that_gives_one_answer_only_is_called_collapsed(tmp_path, rate, collapsed):
    line = closing(tmp_path, [True], [True], rate)[1]
    assert ("collapsed to one answer" in line) == collapsed


def test_a_judge_of_value_may_seldom_expect_a_win():
    numbers = {"evaluation/judge/positive_rate": 0.04, "evaluation/judge/quadratic_score": 0.9}
    assert judge_fault(numbers, "judge") == ""


def test_a_judge_that_nobody_can_read_is_called_so_and_not_collapsed(tmp_path):
    line = closing(tmp_path, [True], [True], positive=0.0, unreadable=1.0)[1]
    assert line.endswith("says +1 on 0.0% -> 0.0%, 100.0% unreadable")


def test_a_judge_without_ground_truth_is_not_spoken_of(tmp_path):
    assert not any(
        line.startswith("judge") for line in closing(tmp_path, [True], [True], counted=None)
    )


def test_a_judge_that_writes_tests_is_spoken_of_by_what_they_are_counted_by(tmp_path):
    store = Store.create(tmp_path / "run.sqlite")
    for iteration, passed in ((0, 2), (7, 6)):
        judged = {str(i): {"UT": (passed, 8), "Detect": (1, 8)} for i in range(20)}
        rows = {"in_domain": [("a", "", 1, 1)]}
        metrics = {"judge/updates": 4.0}
        store.record_evaluation(evaluation_record(iteration, rows, {"judge": judged}, metrics))
    pool = Pool([Task("r", "")], 0.2, 0.8)
    lines = closing_lines(tmp_path, store, RECIPE, pool, 60.0)
    handed = RECIPE.domain.model_copy(update={"name": "object(__main__.Lights)"})
    own = closing_lines(tmp_path, store, RECIPE.model_copy(update={"domain": handed}), pool, 60.0)
    store.close()
    assert lines[-1].endswith("--split in_domain` plays fresh episodes")
    assert own[-1].endswith("domain=...).evaluate('in_domain')` plays fresh episodes")
    assert lines[1:3] == [
        "judge, UT: 25.0% -> 75.0%: +50.0 points [+33.8, +63.4], improved",
        "judge, Detect: 12.5% -> 12.5%: +0.0 points [-13.5, +13.5], "
        "not clearly improved (the 95% interval holds 0)",
    ]


def test_who_brings_code_is_told_to_allow_it_again(tmp_path):
    own = load_recipe({"name": "r", "domain": {"name": "games.own:Game"}}, allow_code=True)
    store = Store.create(tmp_path / "run.sqlite")
    line = closing_lines(tmp_path, store, own, Pool([Task("r", "")], 0.2, 0.8), 60.0)[-1]
    store.close()
    assert f"eval {tmp_path} --split ood --allow-code` plays" in line


def test_a_finished_run_says_how_to_give_it_more(tmp_path: Path) -> None:
    assert resuming_line(tmp_path, 3, 8) == "resuming after iteration 3"
    said = resuming_line(Path("runs/my run"), 8, 8)
    assert said.startswith("this run is finished: it has all 8 iterations")
    assert "`rlanything resume 'runs/my run' loop.iterations=18`" in said


def verdict(before: list[tuple[str, int]], after: list[tuple[str, int]]) -> str:
    change = paired(before, after)
    return Gain("in_domain", success(before), success(after), change).verdict


@pytest.mark.parametrize("rollouts", [1, 8])
@pytest.mark.parametrize(("tasks", "shown"), [(1, False), (2, False), (5, False), (6, True)])
def test_improved_is_never_said_of_fewer_tasks_than_could_show_it(
    tasks: int, shown: bool, rollouts: int
) -> None:
    lost = [(str(task), -1) for task in range(tasks)] * rollouts
    won = [(str(task), 1) for task in range(tasks)] * rollouts
    assert (verdict(lost, won) == "improved") == shown
    assert (verdict(won, lost) == "got worse") == shown
