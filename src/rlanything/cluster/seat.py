"""A seat: a process that holds its share of the models (a rank of the process group)."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import cloudpickle
from torch import distributed

from rlanything.cluster.base import Call, Place
from rlanything.cluster.models import (
    RoleSource,
    ServedModel,
    TrainedModel,
    load_served,
    load_trained,
    prepare_torch,
)
from rlanything.engines.base import PromptsTooLong, Request, Sampling
from rlanything.engines.channel import Channel
from rlanything.engines.hf.text import ModelText
from rlanything.learning.base import Statistics
from rlanything.learning.sharding import seats_of_world
from rlanything.learning.shares import Minibatch
from rlanything.records import Completion


@dataclass(frozen=True, slots=True)
class SamplesDone:
    """Progress message: this many more samples are done."""

    samples: int


@dataclass(frozen=True, slots=True)
class StageBegun:
    """Progress message: a stage of starting begins, and may take this long if that is longer than
    the call's own limit."""

    text: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """Last message of a call that succeeded."""

    result: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """Last message of a call that raised."""

    error: Exception


class Seat:
    """The models of one seat. Methods named `_shared` are collective: all seats call them
    together."""

    def __init__(self, place: Place, report: Callable[[SamplesDone | StageBegun], None]) -> None:
        """Joins the process group. `report` is called with progress messages."""
        prepare_torch(place.threads)
        distributed.init_process_group(
            "gloo" if place.device == "cpu" else "cpu:gloo,cuda:nccl",
            init_method=place.meeting,
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=place.timeout_seconds),
        )
        self._group = seats_of_world(place.device)
        self._report = report
        self._models: dict[str, ServedModel] = {}

    def load_served(self, source: RoleSource) -> ModelText:
        """Loads a full copy of a model that only generates."""
        self._models[source.name] = served = load_served(source, self._show)
        return served.model.text

    def drop(self, role: str) -> None:
        """Frees a model that only generates."""
        self._models.pop(role, None)

    def load_shared(self, pickled: bytes, offload: bool) -> ModelText:
        """Loads this seat's shard of a model that learns, and a full copy for the engine.

        `pickled`: its `RoleSource`, by cloudpickle because a loss may come from a notebook."""
        source: RoleSource = cloudpickle.loads(pickled)
        trained = load_trained(source, self._group, offload, self._show)
        self._models[source.name] = trained
        return trained.model.text

    def generate(
        self, role: str, requests: Mapping[int, Request], sampling: Sampling
    ) -> dict[int, list[Completion]]:
        """Returns completions [n] by the requests' indices among all seats' requests. Raises
        `PromptsTooLong` with such indices."""
        places = list(requests)
        try:
            answers = self._models[role].engine.generate(
                list(requests.values()), sampling, self._done
            )
        except PromptsTooLong as error:
            raise PromptsTooLong(str(error), [places[i] for i in error.places]) from None
        return dict(zip(places, answers, strict=True))

    def sync_weights(self, role: str) -> None:
        """Has an engine drop everything computed with old weights."""
        self._models[role].engine.sync_weights()

    def release_cache(self, role: str) -> None:
        """Frees an engine's memory for the other models."""
        self._models[role].engine.release_cache()

    def learn_shared(self, role: str, minibatches: Sequence[Minibatch]) -> Statistics:
        """Trains on this seat's passes, passes the new weights to the engine, and returns the
        statistics of all seats."""
        return self._shared(role).learn(minibatches, self._done)

    def save_shared(self, role: str, folder: Path) -> None:
        """Begins to write a model and its optimizer, as they are now, into a folder that all seats
        see. One of the files `marks` says when this seat's part is done."""
        arguments = (self._shared(role).snapshot(folder), *marks(folder, self._group.rank))
        Thread(target=write_part, args=arguments, daemon=True).start()

    def load_state_shared(self, role: str, folder: Path) -> None:
        """Reads a learner's saved state from a folder."""
        self._shared(role).load_state(folder)

    def _done(self, samples: int) -> None:
        self._report(SamplesDone(samples))

    def _show(self, text: str, seconds: float) -> None:
        self._report(StageBegun(text, seconds))

    def _shared(self, role: str) -> TrainedModel:
        model = self._models[role]
        assert isinstance(model, TrainedModel)
        return model


def marks(folder: Path, rank: int) -> tuple[Path, Path]:
    """Returns the files that say that a seat wrote its part into a folder, or why it could not."""
    return folder / f"seat-{rank}.written", folder / f"seat-{rank}.failed"


def write_part(write: Callable[[], None], written: Path, failed: Path) -> None:
    try:
        write()
        written.touch()
    except Exception as error:
        failed.write_text(str(error), encoding="utf-8")


def serve(channel: Channel) -> None:
    """Runs the calls that arrive over a channel, until its other end is gone."""

    place: Place = channel.receive()
    seat = Seat(place, channel.send)
    channel.send(Done(None))
    while True:
        channel.send(answer(seat, channel.receive()))


def answer(seat: Seat, call: Call) -> Done | Failed:
    """Runs a call on a seat."""
    try:
        return Done(call.method(seat, *call.arguments))
    except Exception as error:
        traceback.print_exc()  # into the seat's log
        return Failed(_portable(error))


def _portable(error: Exception) -> Exception:
    """Returns the error, or one with the same message that can be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def main() -> None:
    # The driver handles them, and waits for what a seat writes; it kills seats otherwise.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # These errors mean that the driver is gone.
    with suppress(EOFError, BrokenPipeError):
        serve(Channel(socket.socket(fileno=int(sys.argv[1]))))
    # Skip clean-ups that would wait for seats that may be gone.
    sys.stderr.flush()
    os._exit(0)
