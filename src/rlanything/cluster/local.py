"""Seats as processes of this machine."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any, cast

from rlanything.cluster import seat
from rlanything.cluster.base import Place
from rlanything.cluster.pool import Answers
from rlanything.cluster.seat import Done, Failed, SamplesDone
from rlanything.config.cluster import ClusterConfig
from rlanything.engines.child import Child
from rlanything.rollout.worker_process import LONGEST_WAIT


class LocalSeats(Answers):
    """Processes of this machine, each with its own GPU or its own share of the cores."""

    def __init__(self, config: ClusterConfig, device: str, threads: int) -> None:
        """`device`: `cpu`, or `cuda` for a GPU a seat; `threads`: CPU threads of all together,
        0 for as many as there are cores. Raises `SeatLost` where they do not come up."""
        self._meeting = tempfile.TemporaryDirectory(prefix="rlanything-seats-")
        cores = threads or len(os.sched_getaffinity(0))
        place = Place(
            rank=0,
            size=config.seats,
            meeting=f"file://{self._meeting.name}/meeting",
            device=device,
            threads=max(1, cores // config.seats),
            timeout_seconds=config.timeout_seconds,
        )
        self._seats = [
            Child(seat.__name__, _environment(rank, place)) for rank in range(config.seats)
        ]
        places = [dataclasses.replace(place, rank=rank) for rank in range(config.seats)]
        self._post(dict(enumerate(places)), config.start_seconds)
        try:
            _, failures = self._gather(set(range(self.size)), config.start_seconds)
            if failures:
                raise failures[min(failures)]
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self._seats)

    @property
    def process_ids(self) -> list[int]:
        """The seats' process ids, to watch them by."""
        return [process.id for process in self._seats]

    def close(self) -> None:
        for process in self._seats:
            process.kill()
        self._meeting.cleanup()

    @property
    def alive(self) -> bool:
        return self._seats[0].kill.alive

    def _post(self, messages: Mapping[int, Any], seconds: float) -> None:
        for number, message in messages.items():
            with suppress(EOFError, OSError):  # dead, as its answer will say
                self._seats[number].channel.send(message, seconds)

    def _wait(self, waiting: Collection[int], seconds: float) -> list[int]:
        channels = {self._seats[number].channel.fileno: number for number in waiting}
        # Nothing but file descriptors was given, so nothing else comes back.
        heard = wait(list(channels), min(seconds, LONGEST_WAIT))
        return [channels[cast(int, ready)] for ready in heard]

    def _receive(self, number: int, seconds: float) -> SamplesDone | Done | Failed:
        try:
            return self._seats[number].channel.receive(seconds)
        except TimeoutError:
            self._lose(f"seat {number} went silent in the middle of a message")
        except (EOFError, OSError):
            self._lose(f"seat {number} died ({self._seats[number].last_words()})")


def _environment(rank: int, place: Place) -> dict[str, str]:
    """Returns the environment of a seat: its threads, its GPU, and no way out of this machine."""
    environment = {
        "OMP_NUM_THREADS": str(place.threads),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    if place.device != "cpu":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[rank] if visible else str(rank)
    return environment
