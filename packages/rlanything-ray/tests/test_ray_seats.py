"""Seats of a Ray cluster: where they are, what they are asked, and how they are lost."""

from __future__ import annotations

import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray  # pyright: ignore[reportMissingImports]

from cluster.test_local_seats import Deeds, both
from rlanything.cluster.base import Call, SeatLost
from rlanything.config.cluster import ClusterConfig
from rlanything.engines.base import ModelError
from rlanything_ray.seats import RaySeats, interface_of

pytestmark = pytest.mark.timeout(120)
NODE_OF = Call(lambda seat: ray.get_runtime_context().get_node_id())


@pytest.fixture(autouse=True)
def _all_there(cluster: Any) -> Iterator[None]:
    """No seat of a test is left when it ends."""
    yield
    deadline = time.monotonic() + 20
    while ray.is_initialized() and ray.available_resources().get("CPU") != 6:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def opened(seats: int = 2, **settings: Any) -> RaySeats:
    config = {"seats": seats, "launcher": "ray", "start_seconds": 60} | settings
    return RaySeats(ClusterConfig.model_validate(config), "cpu", seats)


def nodes(seats: RaySeats) -> list[int]:
    """How many seats the machines have that have any."""
    found = seats.ask(dict.fromkeys(range(seats.size), NODE_OF), 30)
    return sorted(Counter(found.values()).values())


def test_what_is_asked_is_answered_by_seat_and_progress_comes_between() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seats = opened()
    assert signal.getsignal(signal.SIGTERM) is before
    assert nodes(seats) == [2]  # as few machines as can be
    assert seats.ask(both(Deeds.number), 30) == {0: 0, 1: 1}
    assert seats.ask({1: Call(Deeds.number)}, 30) == {1: 1}
    told: list[int] = []
    assert seats.ask(both(Deeds.count, 3), 30, told.append) == {0: 2.0, 1: 2.0}
    assert told == [1] * 6
    assert seats.ask(both(Deeds.threads), 30) == {0: (1, "1"), 1: (1, "1")}
    assert seats.ask({0: Call(lambda seat: Path.cwd())}, 30) == {0: Path.cwd()}
    with pytest.raises(ModelError, match="seat says no") as caught:
        seats.ask(both(Deeds.refuse, 1), 30)
    [note] = caught.value.__notes__
    assert note.startswith("on seat 1 on ")
    assert seats.ask(both(Deeds.number), 30) == {0: 0, 1: 1}
    seats.close()
    with pytest.raises(SeatLost):
        seats.ask(both(Deeds.number), 30)


def test_machines_get_as_many_seats_as_they_should_have() -> None:
    seats = opened(3, per_machine=2)
    assert nodes(seats) == [1, 2]
    seats.close()


def test_where_there_is_no_room_one_line_says_what_is_needed_and_what_there_is() -> None:
    with pytest.raises(SeatLost) as caught:
        opened(4, per_machine=1, start_seconds=2)
    assert str(caught.value) == (
        "cluster: in 2 s Ray found no room for 1 CPU + 1 CPU + 1 CPU + 1 CPU; the cluster has "
        "6 CPU in all"
    )


def test_a_machine_that_does_not_see_the_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "cwd", lambda: Path("/not/there"))
    with pytest.raises(ModelError, match=r"/not/there is not there on [\d.]+ .* all machines see"):
        opened()


def test_seats_meet_at_a_port_of_the_range() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ModelError, match=f"all ports from {port} to {port} are taken"):
            opened(ports=(port, port))
        seats = opened(ports=(port, port + 20))
    assert seats.ask(both(Deeds.count, 1), 30) == {0: 2.0, 1: 2.0}
    seats.close()


def lost(
    method: Callable[..., Any], *arguments: object, seconds: float = 30
) -> tuple[Exception, float]:
    seats = opened()
    begun = time.monotonic()
    with pytest.raises((SeatLost, ModelError)) as caught:
        seats.ask(both(method, *arguments), seconds)
    took = time.monotonic() - begun
    with pytest.raises(SeatLost, match="the seats have ended"):
        seats.ask(both(Deeds.number), 30)
    return caught.value, took


def test_a_seat_that_dies_while_others_wait_for_it_is_noticed_at_once() -> None:
    error, took = lost(Deeds.die, 1)
    assert isinstance(error, SeatLost)
    assert took < 5
    assert str(error).startswith("seat 1 on ")
    assert "died (ActorDiedError: " in str(error)
    assert "\n" not in str(error)


def test_a_seat_that_hangs_meets_its_time_out() -> None:
    error, took = lost(Deeds.sleep, 0, seconds=2)
    assert "no message from seat 0, 1 for 2 s" in str(error)
    assert took < 5


def test_a_call_that_fails_on_one_seat_does_not_leave_the_other_waiting_for_ever() -> None:
    error, took = lost(Deeds.refuse_in_a_collective, 0, seconds=3)
    assert str(error) == "seat says no"
    assert took < 6


def test_interfaces_are_found_by_their_addresses() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.7") is None
