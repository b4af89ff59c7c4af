"""The trajectories that a judge is evaluated on: how many, which, and whole tasks of programs."""

from __future__ import annotations

from rlanything.records import Task, Trajectory
from rlanything_judge.stored import drawn

THERE = [Trajectory(f"{t}/{g}", Task(str(t), ""), (), 1) for t in range(6) for g in range(4)]


def names(count: int, seed: int = 0, whole_tasks: bool = False) -> list[str]:
    return [each.id for each in drawn(THERE, count, seed, whole_tasks)]


def test_the_same_seed_draws_the_same_in_their_order_and_another_seed_others() -> None:
    order = [each.id for each in THERE]
    assert names(5) == names(5) != names(5, seed=1)
    assert len(names(5)) == 5
    assert names(5) == sorted(names(5), key=order.index)
    assert names(100) == order


def test_whole_tasks_are_drawn_together_and_one_at_least() -> None:
    for count, tasks in ((1, 1), (4, 1), (7, 1), (8, 2), (24, 6)):
        taken = names(count, whole_tasks=True)
        assert len(taken) == 4 * tasks
        assert len({name.split("/")[0] for name in taken}) == tasks
