"""Seats as processes on this machine."""

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
from rlanything.cluster.pool import SeatPool
from rlanything.cluster.seat import Done, Failed, SamplesDone, StageBegun
from rlanything.config.cluster import ClusterConfig
from rlanything.engines.child import Child
from rlanything.openmp import cores
from rlanything.rollout.worker_process import LONGEST_WAIT


class LocalSeats(SeatPool):
    """Processes on this machine, each with its own GPU or its own share of the cores."""

    def __init__(self, config: ClusterConfig, device: str, threads: int) -> None:
        """`device`: `cpu`, or `cuda` for one GPU per seat; `threads`: total CPU threads, 0 for one
        per core. Raises `SeatLost` if the seats do not start."""
        self._meeting = tempfile.TemporaryDirectory(prefix="rlanything-seats-")
        place = Place(
            rank=0,
            size=config.seats,
            meeting=f"file://{self._meeting.name}/meeting",
            device=device,
            threads=max(1, (threads or cores()) // config.seats),
            timeout_seconds=max(config.load_seconds, config.timeout_seconds),
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
        return len(self._seats)

    @property
    def process_ids(self) -> list[int]:
        """Process ids of the seats, for monitoring."""
        return [process.id for process in self._seats]

    def close(self) -> None:
        self.usable = False
        for process in self._seats:
            process.kill()
        self._meeting.cleanup()

    @property
    def alive(self) -> bool:
        return all(process.running for process in self._seats)

    def _post(self, messages: Mapping[int, Any], seconds: float) -> None:
        for number, message in messages.items():
            with suppress(EOFError, OSError):  # a dead seat, detected when its answer is due
                self._seats[number].channel.send(message, seconds)

    def _wait(self, waiting: Collection[int], seconds: float) -> list[int]:
        channels = {self._seats[number].channel.fileno: number for number in waiting}
        # Only file descriptors are passed in, so only they are returned.
        heard = wait(list(channels), min(seconds, LONGEST_WAIT))
        return [channels[cast(int, ready)] for ready in heard]

    def _receive(self, number: int, seconds: float) -> SamplesDone | StageBegun | Done | Failed:
        try:
            return self._seats[number].channel.receive(seconds)
        except TimeoutError:
            self._lose(f"seat {number} went silent in the middle of a message")
        except (EOFError, OSError):
            self._lose(f"seat {number} died ({self._seats[number].last_words()})")


def _environment(rank: int, place: Place) -> dict[str, str]:
    """Returns a seat's environment variables: its threads, its GPU, and loopback only."""
    environment = {
        "OMP_NUM_THREADS": str(place.threads),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    if place.device != "cpu":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[rank] if visible else str(rank)
    return environment
