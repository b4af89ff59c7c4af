"""Many episodes at once in a few worker processes, in lockstep.

A worker that dies or hangs is replaced and its episodes are played again from their recorded
responses, which gives the same observations because episodes are deterministic.

The workers are plain subprocesses: those of `multiprocessing` import the main script again, and
with it whatever it imports (torch, most of all).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rlanything.domains.base import Domain, DomainError, EpisodeError, Observation, StepResult
from rlanything.domains.registry import DomainSource
from rlanything.files import replace_file
from rlanything.records import Task
from rlanything.rollout import episode_host
from rlanything.rollout.episode_host import Answer, EpisodeHost, Play

MAX_DEATHS = 3
"""Deaths in a row at the same episode that make it the culprit."""

START_SECONDS = 120.0
"""What a worker may take to import its domain, on a busy machine."""

CLOSE_SECONDS = 2.0


@dataclass(slots=True)
class _Episode:
    task: Task
    worker: int
    slot: int
    responses: list[str] = field(default_factory=list)
    deaths: int = 0
    open: bool = True
    failure: EpisodeError | None = None
    """Noticed while the episode was played again, returned at its next step."""

    def again(self) -> Play:
        return Play(self.slot, self.task, tuple(self.responses), begin=True)


class EnvironmentPool:
    """`workers` processes (0: this one) that play the episodes of one domain.

    `timeout_seconds`: how long a single reset or step may take before its worker counts as hung.
    Results do not depend on the number of workers. A context manager; for one thread only.
    """

    def __init__(
        self,
        domain: str | Domain,
        options: Mapping[str, Any],
        workers: int,
        timeout_seconds: float,
        images: Path | None = None,
    ) -> None:
        """`domain`: a name with its `options`, from which every worker makes its own, or a domain
        itself, which travels to the workers pickled, so that a class of a notebook cell may play
        too. `images`: the folder that keeps screenshots, by name, each once; None: nothing does.

        Raises `DomainError` if the domain cannot be set up or cannot travel; what only a worker
        finds out, `reset` raises."""
        self.restarts = 0
        """Workers replaced so far."""
        source = DomainSource.of(domain, options)
        self._timeout_seconds = timeout_seconds
        self._images = images
        self._episodes: list[_Episode] = []
        self._failed_starts = 0
        self._host = EpisodeHost(source.load()) if workers == 0 else None
        self._source = source.portable() if workers else source
        self._workers = [self._start() for _ in range(workers)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers; none is left running."""
        for process in self._workers:
            process.hang_up()
        for process in self._workers:
            process.end()
        self._workers = []

    @property
    def process_ids(self) -> list[int]:
        """The workers' process ids, to watch them by."""
        return [process.id for process in self._workers]

    def reset(self, tasks: Sequence[Task]) -> list[Observation | EpisodeError]:
        """Opens one episode per task, numbered in their order; forgets all earlier ones.

        An episode that cannot be played has its `EpisodeError` in the place of an observation."""
        shares = max(1, len(self._workers))
        self._episodes = []
        taken = [0] * shares
        for index, task in enumerate(tasks):
            # In blocks: the episodes of a task are neighbours, and share what a worker caches.
            share = index * shares // len(tasks)
            self._episodes.append(_Episode(task, share, slot=taken[share]))
            taken[share] += 1
        plays = {index: episode.again() for index, episode in enumerate(self._episodes)}
        answers = self._play(plays)
        return [_opened(answers[index]) for index in range(len(tasks))]

    def step(self, responses: Mapping[int, str]) -> dict[int, StepResult | EpisodeError]:
        """Plays one response in each of the given episodes. Those with an outcome or an error are
        over. Raises `ValueError` for an episode that is not open."""
        results: dict[int, StepResult | EpisodeError] = {}
        plays: dict[int, Play] = {}
        for index, response in responses.items():
            if not 0 <= index < len(self._episodes) or not self._episodes[index].open:
                raise ValueError(f"episode {index} is not open: only open episodes can be stepped")
            episode = self._episodes[index]
            episode.responses.append(response)
            if episode.failure is None:
                plays[index] = Play(episode.slot, episode.task, (response,), begin=False)
            else:
                results[index], episode.open = episode.failure, False
        for index, answer in self._play(plays).items():
            results[index] = _stepped(answer)
        return {index: results[index] for index in responses}

    def forget(self, index: int) -> None:
        """Ends an episode before its outcome; it is not played again if its worker dies."""
        self._episodes[index].open = False

    def _play(self, plays: Mapping[int, Play]) -> dict[int, Answer]:
        if self._host is not None:
            answers = {index: self._host.play(play) for index, play in plays.items()}
        else:
            shares: dict[int, dict[int, Play]] = {}
            for index, play in plays.items():
                shares.setdefault(self._episodes[index].worker, {})[index] = play
            for number, share in shares.items():
                self._workers[number].post(list(share.values()))
            answers = {}
            for number, share in shares.items():
                answers |= self._collect(number, share)
        for index, answer in answers.items():
            over = isinstance(answer, EpisodeError) or (
                isinstance(answer, StepResult) and answer.outcome is not None
            )
            self._episodes[index].open = not over
            self._keep_image(answer)
        return answers

    def _keep_image(self, answer: Answer) -> None:
        seen = answer.observation if isinstance(answer, StepResult) else answer
        if self._images is None or isinstance(seen, EpisodeError) or seen.image is None:
            return
        path = self._images / seen.image.name
        if not path.exists():
            self._images.mkdir(exist_ok=True)
            replace_file(path, seen.image.data)

    def _collect(self, number: int, share: Mapping[int, Play]) -> dict[int, Answer]:
        """Returns the answers of one worker, or of those that replace it."""
        answers: dict[int, Answer] = {}
        owed = dict(share)
        while owed:
            index, play = next(iter(owed.items()))
            process = self._workers[number]
            try:
                answer = process.answer(self._timeout_seconds * (1 + len(play.responses)))
            except (EOFError, OSError):  # dead, hung, or dead in the middle of a message
                self._blame(process, self._episodes[index])
                owed = self._replace(number)
            else:
                del owed[index]
                answers.setdefault(index, answer)
                self._episodes[index].deaths = self._failed_starts = 0
        for index in share:
            failure = self._episodes[index].failure
            if failure is not None:
                answers[index] = failure
        return {index: answers[index] for index in share}

    def _blame(self, process: _Worker, episode: _Episode) -> None:
        """Counts a death against the episode whose answer was next: a worker answers in order."""
        if process.ready:
            episode.deaths += 1
            if episode.deaths == MAX_DEATHS:
                reason = f"its worker died or hung {MAX_DEATHS} times in a row"
                lost = bool(episode.responses)
                episode.failure = EpisodeError(episode.task.id, reason, deadly=True, lost=lost)
            return
        self._failed_starts += 1
        if self._failed_starts == MAX_DEATHS:
            raise DomainError(
                f"domain {self._source.name}: its workers die at the start; see their messages"
                " above, or use 0 workers to play in this process"
            )

    def _replace(self, number: int) -> dict[int, Play]:
        """Starts a new worker on what the old one had open; returns that."""
        self.restarts += 1
        self._workers[number].end(at_once=True)
        self._workers[number] = self._start()
        plays = {
            index: episode.again()
            for index, episode in enumerate(self._episodes)
            if episode.worker == number and episode.open and episode.failure is None
        }
        self._workers[number].post(list(plays.values()))
        return plays

    def _start(self) -> _Worker:
        return _Worker(self._source, self._timeout_seconds)


class _Worker:
    """A worker process and the socket to it."""

    def __init__(self, source: DomainSource, timeout_seconds: float) -> None:
        self.ready = False
        """Whether it has set up its domain."""
        self._socket, theirs = socket.socketpair()
        self._connection = Connection(os.dup(self._socket.fileno()))
        self._limit(socket.SO_SNDTIMEO, timeout_seconds)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", episode_host.__name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(p or os.curdir for p in sys.path)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # a game's library may print; the terminal is not its
            )
        self.id = self._process.pid
        self._send(source)

    def post(self, plays: list[Play]) -> None:
        self._send(plays)

    def answer(self, timeout_seconds: float) -> Answer:
        """Returns the next answer. Raises `EOFError` or `OSError` if the worker died or took too
        long, and `DomainError` if it cannot set up its domain."""
        if not self.ready:
            self._limit(socket.SO_RCVTIMEO, START_SECONDS)
            refusal = self._connection.recv()
            if isinstance(refusal, DomainError):
                raise refusal
            self.ready = True
        self._limit(socket.SO_RCVTIMEO, timeout_seconds)
        return self._connection.recv()

    def hang_up(self) -> None:
        """Tells the worker to end."""
        self._connection.close()
        self._socket.close()

    def end(self, at_once: bool = False) -> None:
        """Waits for the end of the worker, not for ever."""
        if at_once:
            self.hang_up()
            self._process.kill()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, message: object) -> None:
        # A worker that is dead, or too hung to read, is found out where its answer is due.
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def _limit(self, direction: int, seconds: float) -> None:
        whole, fraction = divmod(seconds, 1.0)
        limit = struct.pack("ll", int(whole), int(fraction * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, direction, limit)


def _opened(answer: Answer) -> Observation | EpisodeError:
    assert not isinstance(answer, StepResult)
    return answer


def _stepped(answer: Answer) -> StepResult | EpisodeError:
    assert not isinstance(answer, Observation)
    return answer
