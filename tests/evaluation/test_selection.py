"""Best of n against one attempt, with intervals over tasks, also where attempts are missing."""

from __future__ import annotations

import pytest

from rlanything.evaluation.selection import Selection, best_of_n
from rlanything.records import Completion, JudgedTrajectory, Judgement, Step, Task, Trajectory

STEP = Step("", Completion.unsampled(""), None, False, "")


def attempt(task: str, outcome: int, score: int) -> JudgedTrajectory:
    trajectory = Trajectory("", Task(task, ""), (STEP,), outcome)
    return JudgedTrajectory(trajectory, ((Judgement(STEP.completion, score),),))


def chosen(judged: list[JudgedTrajectory], unplayable: list[str]) -> Selection:
    selection = best_of_n(judged, unplayable)
    assert selection is not None
    return selection


def test_attempts_that_could_not_be_played_widen_every_interval_and_move_no_estimate() -> None:
    won = [attempt(str(i), 1, 1) for i in range(8)]
    lost = [attempt(str(i), -1, -1) for i in range(8)]
    honest, hiding = chosen([*won, *lost], []), chosen(won, [str(i) for i in range(8)])
    assert hiding.single.estimate == hiding.chosen.estimate == 1.0
    assert hiding.single.low <= honest.single.low < 0.5
    assert hiding.chosen.low < 0.5 < honest.chosen.low
    assert hiding.gain.low < 0 < honest.gain.low
    assert hiding.possible == honest.possible == 1.0


def test_a_task_none_of_whose_attempts_could_be_played_counts_in_the_intervals() -> None:
    played = [attempt("a", 1, 1)]
    assert chosen(played, ["b"]).single.low < chosen(played, []).single.low
    assert best_of_n([], ["b"]) is None


def test_the_attempt_that_the_judge_prefers_is_taken() -> None:
    selection = best_of_n(
        [j for t in range(8) for j in (attempt(str(t), -1, -1), attempt(str(t), 1, 1))]
    )
    assert selection is not None
    assert (selection.single.estimate, selection.chosen.estimate) == (0.5, 1.0)
    assert selection.gain.estimate == 0.5
    assert selection.gain.low > 0
    assert best_of_n([]) is None


@pytest.mark.parametrize("outcome", [-1, 1])
def test_tasks_that_are_always_won_or_always_lost_are_no_certainty(outcome: int) -> None:
    selection = best_of_n([attempt(str(t), outcome, s) for t in range(5) for s in (-1, 1)])
    assert selection is not None
    for interval in (selection.single, selection.chosen, selection.gain):
        assert interval.high - interval.low > 0.3
