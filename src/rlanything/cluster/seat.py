"""A seat: a process that holds its share of the models; run as a module, one of `LocalSeats`."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlanything.cluster.base import Call, Place
from rlanything.cluster.models import (
    RoleSource,
    ServedModel,
    TrainedModel,
    load_served,
    load_trained,
    prepare_torch,
)
from rlanything.engines.base import Request, Sampling
from rlanything.engines.channel import Channel
from rlanything.engines.hf.text import ModelText
from rlanything.learning.sharding import SeatGroup
from rlanything.learning.shares import Share
from rlanything.records import Completion


@dataclass(frozen=True, slots=True)
class Progress:
    """A message on the way: so many more samples are done."""

    samples: int


@dataclass(frozen=True, slots=True)
class Done:
    """The last message of a call that succeeded."""

    result: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The last message of a call that raised."""

    error: Exception


class Seat:
    """The models of one seat. Methods whose name says `shared` are entered by all seats together."""

    def __init__(self, place: Place, report: Callable[[int], None]) -> None:
        """Meets the other seats. `report` is told of samples that are done."""
        prepare_torch(place.threads)
        self._group = SeatGroup.join(
            place.rank, place.size, place.meeting, place.device, place.timeout_seconds
        )
        self._report = report
        self._models: dict[str, ServedModel] = {}

    def load_served(self, source: RoleSource) -> ModelText:
        """Loads a model that generates and never learns; every seat has all of it."""
        self._models[source.name] = served = load_served(source)
        return served.model.text

    def load_shared(self, source: RoleSource) -> ModelText:
        """Loads a model that learns, a shard of it, and all of it for its engine."""
        self._models[source.name] = trained = load_trained(source, self._group)
        return trained.model.text

    def generate(
        self, role: str, requests: Sequence[Request], sampling: Sampling
    ) -> list[list[Completion]]:
        """Returns completions [requests][n]."""
        return self._models[role].engine.generate(requests, sampling)

    def sync_weights(self, role: str) -> None:
        """Forgets what an engine computed with old weights."""
        self._models[role].engine.sync_weights()

    def release_cache(self, role: str) -> None:
        """Gives an engine's memory back that others may need."""
        self._models[role].engine.release_cache()

    def learn_shared(self, role: str, share: Share) -> dict[str, float]:
        """Trains on this seat's share, hands the new weights to the engine, and returns the
        statistics of all seats."""
        return self._trained(role).learn(share, self._report)

    def save_shared(self, role: str, folder: Path) -> None:
        """Writes a model and its optimizer into a folder that all seats see."""
        self._trained(role).save(folder)

    def load_state_shared(self, role: str, folder: Path) -> None:
        """Reads the state of a learner that was saved into a folder."""
        self._trained(role).load_state(folder)

    def _trained(self, role: str) -> TrainedModel:
        model = self._models[role]
        assert isinstance(model, TrainedModel)
        return model


def serve(channel: Channel) -> None:
    """Does what is asked over a channel, until its other end is gone."""

    def report(samples: int) -> None:
        channel.send(Progress(samples))

    place: Place = channel.receive()
    seat = Seat(place, report)
    channel.send(Done(None))
    while True:
        call: Call = channel.receive()
        try:
            answer: Done | Failed = Done(call.method(seat, *call.arguments))
        except Exception as error:
            traceback.print_exc()  # into the seat's log
            answer = Failed(_portable(error))
        channel.send(answer)


def _portable(error: Exception) -> Exception:
    """Returns an error that can be pickled and unpickled, and says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    try:
        serve(Channel(socket.socket(fileno=int(sys.argv[1]))))
    except (EOFError, BrokenPipeError):  # the driver is gone, and with it the reason to go on
        pass
    # Not by way of clean-ups that wait for seats that may be gone.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
