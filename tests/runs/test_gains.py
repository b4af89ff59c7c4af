"""What a run may say it gained."""

from __future__ import annotations

import pytest

from rlanything.runs.gains import Gain, paired, success


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
