"""Where requests go on several seats."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.cluster.base import Call, SeatLost
from rlanything.cluster.fleet import SeatModels, SeatsEngine, spread_requests
from rlanything.cluster.models import RoleSource
from rlanything.cluster.seat import Failed, Seat, answer, marks, write_part
from rlanything.config.cluster import ClusterConfig
from rlanything.config.engines import OnStage, unseen
from rlanything.config.roles import AdapterConfig, PolicyConfig
from rlanything.engines.base import PromptsTooLong, Request, Sampling


def request(conversation: str, tokens: int) -> Request:
    return Request(tuple(range(1, tokens + 1)), (0,), conversation=conversation)


def test_neighbours_part_and_seats_get_equal_shares():
    requests = [request(f"c{i}", 10) for i in range(8)]
    assert spread_requests(requests, {}, 2) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert spread_requests(requests, {}, 3) == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert spread_requests(requests[:1], {}, 2) == [[0], []]
    long_first = [request("long", 40), *(request(f"c{i}", 10) for i in range(4))]
    assert spread_requests(long_first, {}, 2) == [[0], [1, 2, 3, 4]]


def test_a_conversation_stays_where_it_began_and_new_ones_fill_up():
    homes: dict[str, int] = {}
    assert spread_requests([request(f"c{i}", 10) for i in range(4)], homes, 2) == [[0, 2], [1, 3]]
    later = [request("c3", 20), request("new", 20), request("c1", 20), request("", 20)]
    assert spread_requests(later, homes, 2) == [[1, 3], [0, 2]]
    assert homes == {"c0": 0, "c1": 1, "c2": 0, "c3": 1, "new": 0}
    twice = [request("long", 30), request("long", 30), request("other", 10), request("last", 10)]
    assert spread_requests(twice, {}, 2) == [[0, 1], [2, 3]]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50)), max_size=30), st.integers(1, 4))
def test_every_request_goes_to_exactly_one_seat(
    given: Sequence[tuple[int, int]], seats: int
) -> None:
    requests = [request(f"c{number}", tokens) for number, tokens in given]
    homes: dict[str, int] = {}
    spread = spread_requests(requests, homes, seats)
    assert sorted(i for share in spread for i in share) == list(range(len(requests)))
    for seat, share in enumerate(spread):
        assert share == sorted(share)
        assert {homes[requests[i].conversation] for i in share} <= {seat}


class Echoes:
    """Two seats that answer with what they were asked."""

    size = 2
    alive = usable = True

    def __init__(self) -> None:
        self.asked: list[dict[int, Call]] = []
        self.limits: list[float] = []
        self.on_stage: OnStage = unseen

    def ask(
        self,
        calls: Mapping[int, Call],
        seconds: float,
        on_progress: Callable[[int], None] | None = None,
    ) -> dict[int, Any]:
        self.asked.append(dict(calls))
        self.limits.append(seconds)
        return {
            seat: {i: [r.prompt_ids] for i, r in call.arguments[1].items()}
            if call.method is Seat.generate
            else None
            for seat, call in reversed(list(calls.items()))
        }

    def close(self) -> None: ...


def test_results_come_back_in_the_order_of_the_requests():
    seats = Echoes()
    engine = SeatsEngine(seats, "policy", 60)
    requests = [request(f"c{i}", 10 + i) for i in range(5)]
    sampling = Sampling(1.0, 4)
    assert engine.generate(requests, sampling) == [[r.prompt_ids] for r in requests]
    mixed = [requests[i] for i in (3, 0, 4, 1, 2)]
    assert engine.generate(mixed, sampling) == [[r.prompt_ids] for r in mixed]
    first, second = (
        {s: {r.conversation for r in call.arguments[1].values()} for s, call in each.items()}
        for each in seats.asked
    )
    assert first == second
    assert engine.generate([], sampling) == []
    engine.sync_weights()
    assert set(seats.asked[-1]) == {0, 1}
    engine.generate(mixed[:1], sampling)
    assert set(seats.asked[-1]) == {0}


def test_loading_and_saving_have_a_time_limit_of_their_own(tmp_path: Path) -> None:
    seats = Echoes()
    limits = {"start_seconds": 1, "load_seconds": 2, "timeout_seconds": 3}
    models = SeatModels(seats, ClusterConfig.model_validate({"seats": 2, **limits}))
    trained = models.trained(RoleSource("policy", PolicyConfig(model="any")))
    trained.snapshot(tmp_path)
    trained.load_state(tmp_path)
    models.served(RoleSource("adapter", AdapterConfig(model="any")))
    assert seats.limits == [2, 2, 2, 2]
    assert trained.learner._seconds == 3


def test_a_model_that_is_dropped_leaves_every_seat() -> None:
    seats = Echoes()
    SeatModels(seats, ClusterConfig(seats=2)).drop("evaluation.labeller")
    assert {seat: call.arguments for seat, call in seats.asked[-1].items()} == {
        0: ("evaluation.labeller",),
        1: ("evaluation.labeller",),
    }
    seat = object.__new__(Seat)
    seat._models = {"policy": Mock(), "evaluation.labeller": Mock()}
    for _ in range(2):  # an endpoint's labeller was never there
        seat.drop("evaluation.labeller")
        assert list(seat._models) == ["policy"]


def snapshot_on(seats: Echoes, folder: Path, load_seconds: float = 60) -> Callable[[], None]:
    settings = {"seats": 2, "load_seconds": load_seconds}
    models = SeatModels(seats, ClusterConfig.model_validate(settings))
    return models.trained(RoleSource("policy", PolicyConfig(model="any"))).snapshot(folder)


def test_a_checkpoint_is_written_when_every_seat_says_so(tmp_path: Path) -> None:
    written = snapshot_on(seats := Echoes(), tmp_path)
    assert seats.asked[-1][1].arguments == ("policy", tmp_path)
    thread = Thread(target=written)
    thread.start()
    marks(tmp_path, 1)[0].touch()
    thread.join(0.2)
    assert thread.is_alive()
    marks(tmp_path, 0)[0].touch()
    thread.join(30)
    assert not thread.is_alive()
    assert list(tmp_path.iterdir()) == []


def test_a_seat_that_cannot_write_says_why(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("the disk is full")

    written = snapshot_on(Echoes(), tmp_path)
    write_part(fail, *marks(tmp_path, 0))
    with pytest.raises(OSError, match="the disk is full"):
        written()


def test_seats_that_died_or_are_too_slow_write_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(SeatLost, match="a seat died or hung before it was written"):
        snapshot_on(Echoes(), tmp_path, load_seconds=0.01)()
    written = snapshot_on(seats := Echoes(), tmp_path)
    seats.alive = False
    with pytest.raises(SeatLost, match="a seat died or hung"):
        written()


def test_prompts_that_are_too_long_are_named_by_their_places_among_all():
    class Short:
        def generate(
            self, requests: Sequence[Request], sampling: Sampling, on_samples: Any = None
        ) -> Any:
            raise PromptsTooLong("too long", [len(requests) - 1])

    seat: Any = Seat.__new__(Seat)
    seat._models = {"policy": SimpleNamespace(engine=Short())}
    requests = {3: request("a", 10), 7: request("b", 10)}
    failed = answer(seat, Call(Seat.generate, ("policy", requests, Sampling(1.0, 4))))
    assert isinstance(failed, Failed)
    error = pickle.loads(pickle.dumps(failed.error))
    assert isinstance(error, PromptsTooLong)
    assert (str(error), error.places) == ("too long", (7,))
