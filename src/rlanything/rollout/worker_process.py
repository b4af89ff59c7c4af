"""A worker process of `EnvironmentPool`, the socket to it, and the answers it owes.

Workers are plain subprocesses: those of `multiprocessing` would import the main script again, and
with it torch. They may be on another machine: a launcher only has to provide a connection to the
worker and a way to end it.
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
"""Time limit for a worker to import its domain, on a busy machine."""

CLOSE_SECONDS = 2.0
LONGEST_WAIT = 86_400.0
"""Longest single poll in seconds (the system's limit is 24 days); longer waits poll again."""


@dataclass(slots=True)
class PooledEpisode:
    """An episode of the pool, with everything needed to replay it."""

    index: int
    task: Task
    worker: int = -1
    slot: int = -1
    """The worker's slot that plays it, once it has begun."""
    responses: list[Response] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    """Fingerprints of the answers to the reset and to each response."""
    faults: int = 0
    """Faults in a row at the last response, or at the first reset."""
    failed_replays: int = 0
    """Replays in a row that failed before the last response."""
    open: bool = False
    awaited: bool = False
    """Whether the pool's caller awaits an answer."""
    replaying: bool = False
    """Whether a replay is under way; the last response is sent after it."""
    failure: EpisodeError | None = None
    """The error that ended it, returned at the episode's next step."""

    def place(self, worker: int, slot: int) -> None:
        """Assigns it to a worker's slot."""
        self.worker = worker
        self.slot = slot
        self.open = True

    def replay(self) -> Owed:
        """Returns the play that begins it in a fresh environment and repeats every response that
        was answered."""
        self.replaying = bool(self.seen)
        answered = tuple(self.responses[: len(self.seen) - 1]) if self.seen else ()
        return Owed(self, Play(self.slot, self.task, answered, begin=True, seen=tuple(self.seen)))

    def last(self, ahead: bool) -> Owed:
        """Returns the play of its last response."""
        response = (self.responses[-1],)
        return Owed(self, Play(self.slot, self.task, response, begin=False, ahead=ahead))


@dataclass(slots=True)
class Owed:
    """A play that a worker has not answered yet."""

    episode: PooledEpisode
    play: Play
    wanted: bool = True
    """Whether the pool still plays this episode."""

    @property
    def replay(self) -> bool:
        """Whether it only brings a fresh environment up to date."""
        return bool(self.play.seen)


class Launched(Protocol):
    """A process that plays episodes on any machine; it ends when its connection is closed."""

    id: int
    """Process id on its machine."""
    connection: Connection

    def kill(self) -> None:
        """Ends it immediately."""
        ...

    def wait(self, seconds: float) -> bool:
        """Returns whether it ended within this time."""
        ...


Launch: TypeAlias = Callable[[], Launched]
"""Starts a worker process. Raises `DomainError` if that is no longer possible."""


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
    """Starts a process that answers on an inherited socket."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", episode_host.__name__, str(descriptor)],
        pass_fds=[descriptor],
        env=os.environ | child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # a game's library may print
    )


def ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Returns whether a process ended within this time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


class WorkerProcess:
    """A worker process and the answers it owes."""

    def __init__(self, launch: Launch, source: DomainSource, timeout_seconds: float) -> None:
        self.ready = False
        """Whether it has set up its domain."""
        self.queue: list[Owed] = []
        """Plays that were not sent yet."""
        self.owed: deque[Owed] = deque()
        """Plays that were sent, in the order of their answers."""
        self._timeout_seconds = timeout_seconds
        self._since = 0.0
        """Time of the last message while busy, or of the last assignment."""
        self._process = launch()
        self.id = self._process.id
        self._connection = self._process.connection
        # Limits the transfer of a message once it has begun. A worker that starts reads nothing.
        self._limit(socket.SO_SNDTIMEO, max(START_SECONDS, timeout_seconds))
        self._limit(socket.SO_RCVTIMEO, timeout_seconds)
        self._send(source)

    @property
    def descriptor(self) -> int:
        """Readable once a message has arrived or the worker has died."""
        return self._connection.fileno()

    def hand_over(self) -> None:
        """Sends queued plays once the worker has answered everything: a busy one may be waiting for
        its answers to be read, and would not read."""
        if self.queue and not self.owed:
            self._send([owed.play for owed in self.queue])
            self.owed.extend(self.queue)
            self.queue = []
            self._since = time.monotonic()

    def drop(self) -> None:
        """Ignores the answers that it still owes."""
        self.queue = []
        for owed in self.owed:
            owed.wanted = owed.episode.awaited = False

    def seconds_left(self) -> float:
        """Returns the time left until its next message is overdue."""
        limit = START_SECONDS
        if self.ready:
            limit = self._timeout_seconds * (1 + len(self.owed[0].play.responses))
        return self._since + limit - time.monotonic()

    def receive(self) -> tuple[Owed, Answer] | None:
        """Returns the next answer and the play it belongs to; None: the worker reports that it is
        ready. Raises `EOFError` or `OSError` if it died, and `DomainError` if it cannot set up its
        domain."""
        message = self._connection.recv()
        self._since = time.monotonic()
        if not self.ready:
            if isinstance(message, DomainError):
                raise message
            self.ready = True
            self._limit(socket.SO_SNDTIMEO, self._timeout_seconds)
            return None
        owed = self.owed.popleft()
        self.hand_over()
        return owed, message

    def hang_up(self) -> None:
        """Tells the worker to end."""
        self._connection.close()

    def end(self, seconds: float = CLOSE_SECONDS, at_once: bool = False) -> None:
        """Gives the worker this long to close its environments and end, then kills it; `at_once`:
        kills it first."""
        if at_once:
            self.hang_up()
            self._process.kill()
        if not self._process.wait(seconds):
            self._process.kill()
            self._process.wait(CLOSE_SECONDS)

    def _send(self, message: object) -> None:
        # A dead or hung worker is detected when its answer is due.
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def _limit(self, direction: int, seconds: float) -> None:
        whole, fraction = divmod(seconds, 1.0)
        limit = struct.pack("ll", int(whole), int(fraction * 1e6))
        with socket.socket(fileno=os.dup(self._connection.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, direction, limit)
