"""Seats as processes of this machine."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any, cast

from rlanything.cluster import seat
from rlanything.cluster.base import Call, Place, SeatLost
from rlanything.cluster.gathering import Answers
from rlanything.cluster.seat import Done, Failed, SamplesDone
from rlanything.config.cluster import ClusterConfig
from rlanything.engines.channel import Channel

LAST_WORDS = 400
"""Characters of a dead seat's last line."""


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
        self._seats = [_Process(rank, place) for rank in range(config.seats)]
        try:
            self._gather(set(range(self.size)), config.start_seconds, None)
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

    def ask(
        self,
        calls: Mapping[int, Call],
        seconds: float,
        on_progress: Callable[[int], None] | None = None,
    ) -> dict[int, Any]:
        """Makes calls, by seat; see `Seats.ask`."""
        if not self._seats[0].kill.alive:
            raise SeatLost("the seats have ended")
        for number, call in calls.items():
            with suppress(EOFError, OSError):  # dead, as its answer will say
                self._seats[number].channel.send(call, seconds)
        return self._gather(set(calls), seconds, on_progress)

    def close(self) -> None:
        for process in self._seats:
            process.kill()
        self._meeting.cleanup()

    def _wait(self, waiting: Collection[int], seconds: float) -> list[int]:
        channels = {self._seats[number].channel.fileno: number for number in waiting}
        # Nothing but file descriptors was given, so nothing else comes back.
        return [channels[cast(int, ready)] for ready in wait(list(channels), seconds)]

    def _receive(self, number: int, seconds: float) -> SamplesDone | Done | Failed:
        try:
            return self._seats[number].channel.receive(seconds)
        except TimeoutError:
            self._lose(f"seat {number} went silent in the middle of a message")
        except (EOFError, OSError):
            self._lose(f"seat {number} died ({self._seats[number].last_words()})")


class _Process:
    """The process of a seat, and the channel to it."""

    def __init__(self, rank: int, place: Place) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the process
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        # Not by `-m`: what the module sends would have another name here.
        code = f"from {seat.__name__} import main; main()"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=_environment(rank, place),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
        self.id = self._process.pid
        # Also where the driver ends by an error: no seat outlives it.
        self.kill = weakref.finalize(self, _end, self._process, self.channel)
        with suppress(EOFError):  # it died already, as its answer will say
            self.channel.send(dataclasses.replace(place, rank=rank))

    def last_words(self) -> str:
        """Returns how it ended, and the last line that it printed."""
        try:
            status = self._process.wait(Answers.grace_seconds)
        except subprocess.TimeoutExpired:
            return "it hung up"
        self._log.seek(0)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line]
        return f"exit status {status}" + (f", {lines[-1][:LAST_WORDS]}" if lines else "")


def _environment(rank: int, place: Place) -> dict[str, str]:
    """Returns the environment of a seat: its threads, its GPU, and no way out of this machine."""
    environment = os.environ | {
        "PYTHONPATH": seat.search_path(),
        "OMP_NUM_THREADS": str(place.threads),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    if place.device != "cpu":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[rank] if visible else str(rank)
    return environment


def _end(process: subprocess.Popen[bytes], channel: Channel) -> None:
    channel.close()
    process.kill()
    process.wait()
