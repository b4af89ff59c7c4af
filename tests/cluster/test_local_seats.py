"""Seats of this machine: what they are asked, what they raise, and how they are lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from torch import distributed

from rlanything.cluster.base import Call, SeatLost
from rlanything.cluster.local import LocalSeats
from rlanything.cluster.seat import SamplesDone, Seat
from rlanything.config.cluster import ClusterConfig
from rlanything.engines.base import ModelError

pytestmark = pytest.mark.timeout(600)


class Deeds(Seat):
    """What a test has a seat do, called on a seat that is none of these."""

    def number(self) -> int:
        return self._group.rank

    def count(self, upto: int) -> float:
        for _ in range(upto):
            self._report(SamplesDone(1))
        return self._group.total(1.0)

    def refuse(self, rank: int) -> None:
        if self._group.rank == rank:
            raise ModelError("seat says no")

    def refuse_in_a_collective(self, rank: int) -> None:
        Deeds.refuse(self, rank)
        distributed.barrier()

    def die(self, rank: int) -> None:
        if self._group.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        distributed.barrier()

    def print_and_die(self) -> None:
        os.write(2, b"the last that was heard\n")
        os._exit(3)

    def sleep(self, rank: int) -> None:
        if self._group.rank == rank:
            time.sleep(60)
        distributed.barrier()

    def refuse_or_nap(self, rank: int) -> None:
        Deeds.refuse(self, rank)
        time.sleep(1)

    def start(self, rank: int, seconds: float, nap: float) -> int:
        self._show(f"seat {self._group.rank}: starting", seconds if self._group.rank == rank else 0)
        time.sleep(nap if self._group.rank == rank else 0)
        return rank

    def threads(self) -> tuple[int, str]:
        import torch

        return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


@pytest.fixture(scope="module")
def seats() -> Iterator[LocalSeats]:
    seats = LocalSeats(ClusterConfig(seats=2, start_seconds=250), "cpu", 2)
    yield seats
    seats.close()


def both(method: object, *arguments: object) -> dict[int, Call]:
    return dict.fromkeys((0, 1), Call(method, arguments))  # pyright: ignore[reportArgumentType]


def alive(process_ids: list[int]) -> list[int]:
    return [pid for pid in process_ids if Path(f"/proc/{pid}/stat").exists()]


def test_what_is_asked_is_answered_by_seat_and_progress_comes_between(seats: LocalSeats) -> None:
    assert seats.ask(both(Deeds.number), 30) == {0: 0, 1: 1}
    assert seats.ask({1: Call(Deeds.number)}, 30) == {1: 1}
    told: list[int] = []
    assert seats.ask(both(Deeds.count, 3), 30, told.append) == {0: 2.0, 1: 2.0}
    assert told == [1] * 6
    assert seats.ask(both(Deeds.threads), 30) == {0: (1, "1"), 1: (1, "1")}


def test_a_seat_that_is_busy_starting_is_not_lost_and_its_stage_is_shown(
    seats: LocalSeats, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(seats, "on_stage", lambda stage, seconds: shown.append(stage))
    # Longer than the call's own limit, on either seat.
    for rank in (0, 1):
        assert seats.ask(both(Deeds.start, rank, 30.0, 4.5), 3) == {0: rank, 1: rank}
    assert shown == ["seat 0: starting"] * 2  # the seats go through the same stages


def test_a_seat_is_lost_in_a_stage_that_takes_longer_than_it_may() -> None:
    error, took = lost(Deeds.start, 1, 6.0, 60.0, seconds=4)
    assert "no message from seat 1 for 6 s" in str(error)
    assert took < 40


def test_what_a_seat_raises_is_raised_and_the_seats_go_on(seats: LocalSeats) -> None:
    with pytest.raises(ModelError, match="seat says no"):
        seats.ask(both(Deeds.refuse, 1), 30)
    assert seats.ask(both(Deeds.number), 30) == {0: 0, 1: 1}


def test_seats_that_do_not_wait_for_one_another_are_given_the_time_they_need(
    seats: LocalSeats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalSeats, "grace_seconds", 0.1)
    calls = {n: replace(call, apart=True) for n, call in both(Deeds.refuse_or_nap, 1).items()}
    with pytest.raises(ModelError, match="seat says no"):
        seats.ask(calls, 30)
    assert seats.ask(both(Deeds.number), 30) == {0: 0, 1: 1}


def test_after_an_interrupted_call_there_is_no_other_but_seats_may_end_what_they_write() -> None:
    def interrupt(samples: int) -> None:
        raise KeyboardInterrupt

    seats = LocalSeats(ClusterConfig(seats=2, start_seconds=250), "cpu", 2)
    with pytest.raises(KeyboardInterrupt):
        seats.ask(both(Deeds.count, 3), 30, interrupt)
    # A late answer would be taken for that of the next call.
    with pytest.raises(SeatLost):
        seats.ask(both(Deeds.number), 30)
    assert seats.alive
    os.kill(seats.process_ids[1], signal.SIGKILL)
    while seats.alive:
        time.sleep(0.01)
    processes = seats.process_ids
    seats.close()
    assert alive(processes) == []


def lost(method: object, *arguments: object, seconds: float = 30) -> tuple[Exception, float]:
    seats = LocalSeats(ClusterConfig(seats=2, start_seconds=250), "cpu", 2)
    processes = seats.process_ids
    seats.ask(both(Deeds.number), 250)  # each imports this module first
    begun = time.monotonic()
    with pytest.raises((SeatLost, ModelError)) as caught:
        seats.ask(both(method, *arguments), seconds)
    took = time.monotonic() - begun
    assert alive(processes) == []
    with pytest.raises(SeatLost):
        seats.ask(both(Deeds.number), 30)
    return caught.value, took


def test_a_seat_that_dies_while_others_wait_for_it_is_noticed_at_once() -> None:
    error, took = lost(Deeds.die, 1)
    assert isinstance(error, SeatLost)
    assert took < 15
    assert "died (exit status -9" in str(error)


def test_the_last_words_of_a_seat_are_told() -> None:
    error, _ = lost(Deeds.print_and_die)
    assert "exit status 3, the last that was heard" in str(error)


def test_a_seat_that_hangs_meets_its_time_out() -> None:
    error, took = lost(Deeds.sleep, 0, seconds=2)
    assert "no message from seat 0, 1 for 2 s" in str(error)
    assert took < 15


def test_a_call_that_fails_on_one_seat_does_not_leave_the_other_waiting_for_ever() -> None:
    error, took = lost(Deeds.refuse_in_a_collective, 0)
    assert str(error) == "seat says no"
    assert took < 20
