"""Groups that outlast an iteration: nobody waits for the slowest episode, and none gets too old."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Timer

import pytest

from helpers.delayed import Delayed
from helpers.tiny import completion_of
from rlanything.domains.base import Episode
from rlanything.records import Completion, Task
from rlanything.rollout.episodes import LiveEpisodes, RolloutRequest
from rlanything.rollout.groups import ScheduledTask
from rlanything.rollout.queue import GroupQueue
from rlanything.rollout.workers import EnvironmentPool


class GoesOn:
    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        return [completion_of((1,), (2,), text="go on") for _ in episodes]

    def release_cache(self) -> None: ...


@pytest.fixture
def queue() -> Iterator[GroupQueue]:
    with EnvironmentPool(Delayed(), {}, 4, 20.0) as pool:
        yield GroupQueue(LiveEpisodes(GoesOn(), pool, 5, 16, lockstep=False))


def begin(
    queue: GroupQueue,
    name: str,
    rollouts: int = 1,
    begun: int = 1,
    candidate: bool = False,
    waits_for: Path = Path("/"),
) -> None:
    """Begins a group whose last rollout waits for a file."""
    data = {"delays": [0.0] * 4}
    tasks = [Task(name, "", data=data)] * (rollouts - 1)
    tasks.append(Task(name, "", data=data | {"waits_for": str(waits_for)}))
    attempts = [RolloutRequest(f"{begun}/{name}/{g}", each, g) for g, each in enumerate(tasks)]
    queue.begin(ScheduledTask(name, tasks[0], candidate, begun), attempts)


def take(queue: GroupQueue, wanted: int, oldest: int) -> tuple[list[str], list[str]]:
    scheduled, played = queue.take(wanted, oldest, lambda _: None)
    assert not played.failures
    return [each.slot for each in scheduled], [each.id for each in played.trajectories]


def test_a_slow_group_is_left_under_way_and_taken_later(queue: GroupQueue, tmp_path: Path) -> None:
    begin(queue, "slow", 2, waits_for=tmp_path / "now")
    begin(queue, "quick", 2)
    assert take(queue, 1, oldest=0) == (["quick"], ["1/quick/0", "1/quick/1"])
    (tmp_path / "now").touch()
    assert take(queue, 1, oldest=0) == (["slow"], ["1/slow/0", "1/slow/1"])
    assert take(queue, 1, oldest=0) == ([], [])


def test_a_group_that_is_old_enough_is_waited_for(queue: GroupQueue, tmp_path: Path) -> None:
    begin(queue, "slow", waits_for=tmp_path / "now")
    begin(queue, "quick", begun=2)
    begin(queue, "another", begun=2)
    Timer(1.0, (tmp_path / "now").touch).start()
    slots, _ = take(queue, 2, oldest=1)
    assert slots[0] == "slow"
    assert len(slots) == 2


def test_candidates_that_have_ended_come_on_top(queue: GroupQueue, tmp_path: Path) -> None:
    begin(queue, "candidate", candidate=True)
    for name in ("a", "b", "c"):
        begin(queue, name)
    queue.finish()
    begin(queue, "late candidate", candidate=True, waits_for=tmp_path / "now")
    assert take(queue, 2, oldest=0)[0] == ["candidate", "a", "b"]
    (tmp_path / "now").touch()
    queue.finish()
    assert take(queue, 2, oldest=0)[0] == ["c", "late candidate"]


def test_episodes_can_begin_again_once_all_have_ended(queue: GroupQueue) -> None:
    begin(queue, "first", 2)
    queue.finish()
    begin(queue, "second", begun=2)
    assert take(queue, 2, oldest=1)[1] == ["1/first/0", "1/first/1", "2/second/0"]
