"""Models on seats, with the same interfaces as models in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from rlanything.cluster.base import Call, SeatLost, Seats
from rlanything.cluster.models import RoleSource
from rlanything.cluster.seat import Seat, marks
from rlanything.config.cluster import ClusterConfig
from rlanything.config.roles import TrainedRoleConfig
from rlanything.engines.base import OnSamples, Request, Sampling
from rlanything.engines.deadline import GRACE_SECONDS
from rlanything.engines.hf.text import ModelText
from rlanything.learning.base import Statistics, Updates
from rlanything.learning.shares import arrange, share
from rlanything.records import Completion, Sample


class SeatsEngine:
    """One model's engines on all seats: every request goes to one of them.

    A conversation stays on its seat, where its cache is, until `sync_weights` or `release_cache`.
    The assignment depends only on the requests."""

    def __init__(self, seats: Seats, role: str, seconds: float) -> None:
        self._seats = seats
        self._role = role
        # Longer than the seat's own engine waits, whose timeout names the role and the remedy.
        self._seconds = seconds + 2 * GRACE_SECONDS
        self._homes: dict[str, int] = {}

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_samples: OnSamples | None = None,
    ) -> list[list[Completion]]:
        """Returns completions [requests][n], in the order of the requests. Raises
        `PromptsTooLong`."""
        spread = spread_requests(requests, self._homes, self._seats.size)
        calls = {
            seat: Call(
                Seat.generate, (self._role, {i: requests[i] for i in chosen}, sampling), apart=True
            )
            for seat, chosen in enumerate(spread)
            if chosen
        }
        answers = self._seats.ask(calls, self._seconds, on_samples) if calls else {}
        completions: dict[int, list[Completion]] = {}
        for groups in answers.values():
            completions |= groups
        return [completions[i] for i in range(len(requests))]

    def sync_weights(self) -> None:
        self._forget(Seat.sync_weights)

    def release_cache(self) -> None:
        self._forget(Seat.release_cache)

    def _forget(self, method: Callable[..., None]) -> None:
        self._homes = {}
        call = Call(method, (self._role,))
        self._seats.ask(dict.fromkeys(range(self._seats.size), call), self._seconds)


def spread_requests(
    requests: Sequence[Request], homes: dict[str, int], seats: int
) -> list[list[int]]:
    """Returns each seat's requests by index, and adds new conversations to `homes`.

    A new conversation goes to the seat with the fewest prompt tokens so far. This separates
    neighbours, which often belong to one task and are about equally long, so that no seat gets all
    the long episodes."""
    known = [homes.get(request.conversation) for request in requests]
    loads = [0] * seats
    for request, home in zip(requests, known, strict=True):
        if home is not None:
            loads[home] += len(request.prompt_ids)
    spread: list[list[int]] = [[] for _ in range(seats)]
    for i, (request, home) in enumerate(zip(requests, known, strict=True)):
        if home is None:
            home = homes.get(request.conversation, loads.index(min(loads)))
            loads[home] += len(request.prompt_ids)
            if request.conversation:
                homes[request.conversation] = home
        spread[home].append(i)
    return spread


class SeatsLearner(Updates):
    """One model's learners on all seats: each trains on its share of every minibatch."""

    def __init__(self, seats: Seats, role: str, settings: TrainedRoleConfig, seconds: float):
        self._seats = seats
        self._role = role
        self._settings = settings
        self._seconds = seconds

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> Statistics:
        shares = share(arrange(samples, self._settings, seed), self._seats.size)
        calls = {
            seat: Call(Seat.learn_shared, (self._role, part)) for seat, part in enumerate(shares)
        }
        return self._seats.ask(calls, self._seconds, on_samples)[0]


@dataclass(frozen=True, slots=True)
class ServedOnSeats:
    """A model that generates on all seats, and its text side in this process."""

    model: ModelText
    engine: SeatsEngine


@dataclass(frozen=True, slots=True)
class TrainedOnSeats(ServedOnSeats):
    """A model that learns on all seats."""

    learner: SeatsLearner
    snapshot: Callable[[Path], Callable[[], None]]
    """Has the seats begin to write, and returns a function that waits until they have."""
    load_state: Callable[[Path], None]
    """Reads the learners' state from the folder of their model."""


class SeatModels:
    """Models on the seats of a cluster."""

    def __init__(self, seats: Seats, config: ClusterConfig) -> None:
        self._seats = seats
        self._config = config

    @property
    def lost(self) -> bool:
        """Whether the seats have ended."""
        return not self._seats.usable

    def trained(self, source: RoleSource) -> TrainedOnSeats:
        """Loads a model that learns, one shard per seat. Raises the errors of `load_trained`."""
        role, name = source.role, source.name
        assert isinstance(role, TrainedRoleConfig)
        seconds = self._config.timeout_seconds

        def snapshot(folder: Path) -> Callable[[], None]:
            deadline = time.monotonic() + self._config.load_seconds
            self._on_all(Call(Seat.save_shared, (name, folder)), self._config.load_seconds)
            return lambda: self._wait_for_files(folder, deadline)

        def load_state(folder: Path) -> None:
            call = Call(Seat.load_state_shared, (name, folder))
            self._on_all(call, self._config.load_seconds)

        text = self._on_all(
            Call(Seat.load_shared, (cloudpickle.dumps(source), self._config.offload)),
            self._config.load_seconds,
        )
        engine = SeatsEngine(self._seats, name, role.timeout_seconds)
        learner = SeatsLearner(self._seats, name, role, seconds)
        return TrainedOnSeats(text, engine, learner, snapshot, load_state)

    def served(self, source: RoleSource) -> ServedOnSeats:
        """Loads a full copy of a model on every seat. Raises the errors of `load_served`."""
        text = self._on_all(Call(Seat.load_served, (source,)), self._config.load_seconds)
        engine = SeatsEngine(self._seats, source.name, source.role.timeout_seconds)
        return ServedOnSeats(text, engine)

    def drop(self, role: str) -> None:
        """Has every seat free its copy of a model."""
        self._on_all(Call(Seat.drop, (role,)), self._config.load_seconds)

    def close(self) -> None:
        """Ends the seats."""
        self._seats.close()

    def _wait_for_files(self, folder: Path, deadline: float) -> None:
        """Waits until all seats have written their parts of a checkpoint, while another thread uses
        them. Raises OSError if one could not, `SeatLost` if one dies or is too slow."""
        for written, failed in (marks(folder, rank) for rank in range(self._seats.size)):
            while not written.exists() and not failed.exists():
                if not self._seats.alive or time.monotonic() > deadline:
                    raise SeatLost(f"{folder}: a seat died or hung before it was written")
                time.sleep(0.05)
            if failed.exists():
                raise OSError(failed.read_text(encoding="utf-8") or "no reason given")
            written.unlink()

    def _on_all(self, call: Call, seconds: float) -> Any:
        """Makes the same call on all seats and returns the first seat's result."""
        return self._seats.ask(dict.fromkeys(range(self._seats.size), call), seconds)[0]
