"""A worker process of `EnvironmentPool`, the socket to it, and what it owes.

The workers are plain subprocesses: those of `multiprocessing` import the main script again, and
with it whatever it imports (torch, most of all). They may be on another machine: all that is asked
of whoever launches one is a connection to it and its end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Protocol, TypeAlias

from rlanything.domains.base import DomainError, EpisodeError
from rlanything.domains.registry import DomainSource
from rlanything.plugins import child_environment
from rlanything.records import Task
from rlanything.rollout import episode_host
from rlanything.rollout.episode_host import Answer, Play, Response

START_SECONDS = 120.0
"""What a worker may take to import its domain, on a busy machine."""

CLOSE_SECONDS = 2.0
LONGEST_WAIT = 86_400.0
"""Seconds; the system takes some 24 days, and who waits longer asks again."""


@dataclass(slots=True)
class PooledEpisode:
    """An episode of the pool, with all that it takes to play it again."""

    index: int
    task: Task
    worker: int = -1
    slot: int = -1
    """Where it is played, once it has begun."""
    responses: list[Response] = field(default_factory=list)
    deaths: int = 0
    open: bool = False
    awaited: bool = False
    """Whether an answer is owed to whom the pool serves."""
    failure: EpisodeError | None = None
    """Noticed while the episode was played again, returned at its next step."""

    def place(self, worker: int, slot: int) -> None:
        """Has it played there."""
        self.worker, self.slot, self.open = worker, slot, True

    def again(self) -> Play:
        return Play(self.slot, self.task, tuple(self.responses), begin=True)


@dataclass(slots=True)
class Owed:
    """A play that a worker has not answered yet."""

    episode: PooledEpisode
    play: Play
    wanted: bool = True
    """Whether its answer is awaited: not where it only brings a new worker up to date."""


class Launched(Protocol):
    """A process that plays episodes, wherever it is; it ends when its connection is closed."""

    id: int
    """Of the process, on its machine."""
    connection: Connection

    def kill(self) -> None:
        """Ends it at once."""
        ...

    def wait(self, seconds: float) -> bool:
        """Returns whether it has ended by then."""
        ...


Launch: TypeAlias = Callable[[], Launched]
"""Starts a worker process. Raises `DomainError` where none can be started any more."""


class LocalWorker:
    """A worker process of this machine."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.connection = Connection(ours.detach())
        with theirs:
            self._process = start_host(theirs.fileno())
        self.id = self._process.pid

    def kill(self) -> None:
        self._process.kill()

    def wait(self, seconds: float) -> bool:
        return ended(self._process, seconds)


def start_host(descriptor: int) -> subprocess.Popen[bytes]:
    """Starts a process that answers on a socket, which it inherits."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", episode_host.__name__, str(descriptor)],
        pass_fds=[descriptor],
        env=os.environ | child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # a game's library may print; the terminal is not its
    )


def ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Returns whether a process has ended by then."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


class WorkerProcess:
    """A worker process and what it owes."""

    def __init__(self, launch: Launch, source: DomainSource, timeout_seconds: float) -> None:
        self.ready = False
        """Whether it has set up its domain."""
        self.queue: list[Owed] = []
        """Not handed over yet."""
        self.owed: deque[Owed] = deque()
        """Handed over, in the order of the answers."""
        self._timeout_seconds = timeout_seconds
        self._since = 0.0
        """When it was last heard of while it owed something, or got something to do."""
        self._process = launch()
        self.id = self._process.id
        self._connection = self._process.connection
        # The time that a message may take once it has begun.
        self._limit(socket.SO_SNDTIMEO, timeout_seconds)
        self._limit(socket.SO_RCVTIMEO, timeout_seconds)
        self._send(source)

    @property
    def descriptor(self) -> int:
        """Readable where a message is there, or the worker dead."""
        return self._connection.fileno()

    def hand_over(self) -> None:
        """Sends what is queued to a worker that has answered everything: one that is still at work
        may wait for its answers to be read, and would not read."""
        if self.queue and not self.owed:
            self._send([owed.play for owed in self.queue])
            self.owed.extend(self.queue)
            self.queue = []
            self._since = time.monotonic()

    def drop(self) -> None:
        """Makes nothing of what it still owes."""
        self.queue = []
        for owed in self.owed:
            owed.wanted = owed.episode.awaited = False

    def seconds_left(self) -> float:
        """Returns how long its next message may still take."""
        limit = START_SECONDS
        if self.ready:
            limit = self._timeout_seconds * (1 + len(self.owed[0].play.responses))
        return self._since + limit - time.monotonic()

    def receive(self) -> tuple[Owed, Answer] | None:
        """Returns the next answer, and what it answers; None for the message that it is ready.
        Raises `EOFError` or `OSError` if the worker died, and `DomainError` if it cannot set up its
        domain."""
        message = self._connection.recv()
        self._since = time.monotonic()
        if not self.ready:
            if isinstance(message, DomainError):
                raise message
            self.ready = True
            return None
        owed = self.owed.popleft()
        self.hand_over()
        return owed, message

    def hang_up(self) -> None:
        """Tells the worker to end."""
        self._connection.close()

    def end(self, seconds: float = CLOSE_SECONDS, at_once: bool = False) -> None:
        """Waits so long for the end of the worker, which closes its environments, then kills it;
        `at_once`: kills it first."""
        if at_once:
            self.hang_up()
            self._process.kill()
        if not self._process.wait(seconds):
            self._process.kill()
            self._process.wait(CLOSE_SECONDS)

    def _send(self, message: object) -> None:
        # A worker that is dead, or too hung to read, is found out where its answer is due.
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def _limit(self, direction: int, seconds: float) -> None:
        whole, fraction = divmod(seconds, 1.0)
        limit = struct.pack("ll", int(whole), int(fraction * 1e6))
        with socket.socket(fileno=os.dup(self._connection.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, direction, limit)
