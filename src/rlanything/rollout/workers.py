"""Many episodes at once in a few worker processes; answers are collected together or as they come.

A worker that dies or hangs is replaced and its episodes are replayed from their recorded responses.
That gives the same observations because episodes are deterministic. A replay also tells who caused
a fault: one that comes back at the same response is the policy's.
"""

from __future__ import annotations

import math
import select
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from rlanything.domains.base import (
    Domain,
    DomainError,
    EpisodeError,
    Observation,
    StepResult,
    UnexplainedError,
)
from rlanything.domains.registry import DomainSource
from rlanything.files import replace_file
from rlanything.records import Task
from rlanything.rollout.episode_host import Answer, EpisodeHost, Response, fingerprint
from rlanything.rollout.worker_process import (
    CLOSE_SECONDS,
    LONGEST_WAIT,
    Launch,
    LocalWorker,
    Owed,
    PooledEpisode,
    WorkerProcess,
)

MAX_FAULTS = 3
"""Faults in a row at one response, or failed replays in a row, after which an episode is given
up."""

CLOSE_BEHIND_SECONDS = 0.02
"""Extra wait in seconds after an answer, so that fast environments are batched."""


class EnvironmentPool:
    """Worker processes, or this one, that play the episodes of one domain.

    `timeout_seconds`: time limit of a single reset or step, after which its worker counts as hung.
    Results do not depend on the number of workers. A context manager; for one thread only.
    """

    def __init__(
        self,
        domain: str | Domain,
        options: Mapping[str, Any],
        workers: int | Sequence[Launch],
        timeout_seconds: float,
        images: Path | None = None,
    ) -> None:
        """`domain`: a name with its `options`, from which every worker makes its own, or a domain
        object, which is pickled for the workers, so that a class of a notebook cell works too.
        `workers`: number of workers on this machine (0: this process plays), or a launcher for each
        worker elsewhere. `images`: folder that keeps each screenshot once, by name; None: they are
        not kept.

        Raises `DomainError` if the domain cannot be set up or pickled; errors that only occur in a
        worker are raised by `reset`."""
        self.restarts = 0
        """Workers replaced so far."""
        source = DomainSource.of(domain, options)
        self._timeout_seconds = timeout_seconds
        self._images = images
        self._episodes: dict[int, PooledEpisode] = {}
        """Episodes that have not ended, by number."""
        self._begun = 0
        """Number of episodes since `begin`."""
        self._at_once = 0
        """Largest number of slots."""
        self._slots: list[int] = []
        """Number of slots of each worker."""
        self._waiting: deque[PooledEpisode] = deque()
        """Episodes that have not begun."""
        self._vacant: deque[tuple[int, int]] = deque()
        """Free slots, as (worker, slot)."""
        self._answers: dict[int, Answer] = {}
        """Answers not collected yet, by episode."""
        self._failed_starts = 0
        local: list[Launch] = [LocalWorker] * workers if isinstance(workers, int) else []
        self._launches = local if isinstance(workers, int) else list(workers)
        self._host = None if self._launches else EpisodeHost(source.load())
        self._source = source.portable() if self._launches else source
        self._workers: list[WorkerProcess] = []
        try:
            for number in range(len(self._launches)):
                self._workers.append(self._start(number))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers; none is left running."""
        for process in self._workers:
            process.hang_up()
        end = time.monotonic() + self._timeout_seconds
        for process in self._workers:
            # A worker in the middle of a step does not notice that the connection closed.
            busy = bool(process.owed)
            process.end(CLOSE_SECONDS if busy else max(CLOSE_SECONDS, end - time.monotonic()))
        self._workers = []
        if self._host is not None:
            self._host.close()

    @property
    def process_ids(self) -> list[int]:
        """Process ids of the workers, for monitoring."""
        return [process.id for process in self._workers]

    def reset(self, tasks: Sequence[Task]) -> list[Observation | EpisodeError]:
        """Opens one episode per task, as `begin` does, and waits for all of them.

        An episode that cannot be played has an `EpisodeError` in place of an observation."""
        self.begin(tasks)
        answers = self.collect()
        return [_opened(answers[index]) for index in range(len(tasks))]

    def step(self, responses: Mapping[int, Response]) -> dict[int, StepResult | EpisodeError]:
        """Plays one response in each of the given episodes, as `post` does, and waits for all of
        them; no other episode may be awaited. An outcome or an error ends an episode."""
        self.post(responses)
        answers = self.collect()
        return {index: _stepped(answers[index]) for index in responses}

    def begin(self, tasks: Sequence[Task], at_once: int | None = None) -> range:
        """Opens one episode per task, and returns their numbers, in order from 0; forgets all
        earlier ones.

        `at_once`: number of episodes open at a time; another begins when one has ended."""
        self._answers, self._vacant = {}, deque()
        for process in self._workers:
            process.drop()
        self._episodes, self._waiting, self._begun = {}, deque(), 0
        self._at_once = sys.maxsize if at_once is None else at_once
        self._slots = [0] * max(1, len(self._workers))
        return self.add(tasks)

    def add(self, tasks: Sequence[Task]) -> range:
        """Opens one more episode per task, and returns their numbers, which follow those before;
        `at_once` stays."""
        numbers = range(self._begun, self._begun + len(tasks))
        self._begun = numbers.stop
        begun = {i: PooledEpisode(i, task) for i, task in zip(numbers, tasks, strict=True)}
        self._episodes |= begun
        self._waiting.extend(begun.values())
        places = min(self._at_once - sum(self._slots), len(self._waiting) - len(self._vacant))
        before = list(self._slots)
        for _ in range(places):
            self._slots[self._slots.index(min(self._slots))] += 1
        # In blocks: the episodes of a task are adjacent and share a worker's caches.
        for worker, (first, end) in enumerate(zip(before, self._slots, strict=True)):
            self._vacant += [(worker, slot) for slot in range(first, end)]
        self._begin_waiting()
        return numbers

    def post(self, responses: Mapping[int, Response]) -> None:
        """Sends one response to each of the given episodes. Raises `ValueError` for an episode that
        is not open or has not answered yet."""
        plays: list[Owed] = []
        for index, response in responses.items():
            episode = self._episodes.get(index)
            if episode is None or not episode.open:
                raise ValueError(f"episode {index} is not open: only open episodes can be stepped")
            if episode.awaited:
                raise ValueError(f"episode {index} has not answered its last response yet")
            episode.responses.append(response)
            if episode.failure is not None:
                self._settle(episode, episode.failure)
            elif episode.replaying:
                episode.awaited = True
            else:
                plays.append(episode.last(ahead=True))
        self._play(plays)

    def collect(self) -> dict[int, Answer]:
        """Waits for the answers of all episodes that owe one, and returns them."""
        self._begin_waiting()
        while any(process.owed for process in self._workers):
            self._hear(math.inf)
        return self._taken()

    def gather(self) -> dict[int, Answer]:
        """Waits for the first answer and those shortly after it, and returns them."""
        self._begin_waiting()
        while not self._answers and any(process.owed for process in self._workers):
            self._hear(math.inf)
        while self._hear(CLOSE_BEHIND_SECONDS):
            pass
        return self._taken()

    def forget(self, index: int) -> None:
        """Ends an episode before its outcome; it is not replayed if its worker dies."""
        if episode := self._episodes.get(index):
            self._end(episode)

    def _end(self, episode: PooledEpisode) -> None:
        if episode.open:
            episode.open = False
            del self._episodes[episode.index]
            self._vacant.append((episode.worker, episode.slot))

    def _begin_waiting(self) -> None:
        """Begins waiting episodes in the free slots."""
        begun: list[Owed] = []
        while self._waiting and self._vacant:
            episode = self._waiting.popleft()
            episode.place(*self._vacant.popleft())
            begun.append(episode.replay())
        self._play(begun)

    def _taken(self) -> dict[int, Answer]:
        taken, self._answers = self._answers, {}
        return dict(sorted(taken.items()))

    def _play(self, plays: Sequence[Owed]) -> None:
        if self._host is not None:
            self._host.announce([owed.play for owed in plays])
        for owed in plays:
            owed.episode.awaited |= not owed.replay
            if self._host is not None:
                self._take(owed, self._host.play(owed.play))
            else:
                self._workers[owed.episode.worker].queue.append(owed)
        for process in self._workers:
            process.hand_over()

    def _take(self, owed: Owed, answer: Answer) -> None:
        """Hands on the answer to a play, unless the episode has to be replayed first."""
        episode = owed.episode
        if owed.replay and not episode.open:
            return
        unsure = owed.replay or isinstance(answer, UnexplainedError)
        if isinstance(answer, EpisodeError) and unsure:
            self._count_fault(owed, answer.reason)
            if episode.failure is None:
                self._play([episode.replay()])
        elif not owed.replay:
            self._settle(episode, answer)
        else:
            episode.failed_replays, episode.replaying = 0, False
            if episode.awaited:
                self._play([episode.last(ahead=False)])

    def _count_fault(self, owed: Owed, reason: str, deadly: bool = False) -> None:
        """Counts a fault of unknown cause, and gives the episode up after `MAX_FAULTS`: as lost if
        the fault came back at the same response, else as missing."""
        episode, task = owed.episode, owed.episode.task.id
        if owed.replay:
            episode.failed_replays += 1
            if episode.failed_replays == MAX_FAULTS:
                episode.failure = EpisodeError(task, reason)
        else:
            episode.faults += 1
            if episode.faults == MAX_FAULTS:
                lost = bool(episode.responses)
                episode.failure = EpisodeError(task, reason, deadly=deadly, lost=lost)
        if episode.failure is not None and episode.awaited:
            self._settle(episode, episode.failure)

    def _settle(self, episode: PooledEpisode, answer: Answer) -> None:
        over = isinstance(answer, StepResult) and answer.outcome is not None
        if over or isinstance(answer, EpisodeError):
            self._end(episode)
        if not isinstance(answer, EpisodeError):
            episode.seen.append(fingerprint(answer))
        episode.faults, episode.awaited = 0, False
        self._answers[episode.index] = answer
        self._keep_images(answer)

    def _keep_images(self, answer: Answer) -> None:
        seen = answer.observation if isinstance(answer, StepResult) else answer
        if self._images is None or isinstance(seen, EpisodeError):
            return
        for name, data in seen.images.items():
            path = self._images / name
            if not _has_size(path, len(data)):
                self._images.mkdir(exist_ok=True)
                replace_file(path, data, synced=True)

    def _hear(self, seconds: float) -> bool:
        """Waits this long for messages, receives one from each worker that sent some, and replaces
        dead or hung workers. Returns whether anything happened."""
        owing = {p.descriptor: n for n, p in enumerate(self._workers) if p.owed}
        if not owing:
            return False
        poll = select.poll()
        for descriptor in owing:
            poll.register(descriptor, select.POLLIN)
        soonest = min(self._workers[number].seconds_left() for number in owing.values())
        heard = poll.poll(max(0.0, min(seconds, soonest, LONGEST_WAIT)) * 1000)
        for descriptor, _ in heard:
            self._receive(owing.pop(descriptor))
        late = [n for n in owing.values() if self._workers[n].seconds_left() <= 0]
        for number in late:
            self._replace(number)
        return bool(heard or late)

    def _receive(self, number: int) -> None:
        process = self._workers[number]
        try:
            received = process.receive()
        except (EOFError, OSError):  # dead, or dead or hung in the middle of a message
            self._replace(number)
            return
        if received is None:
            return
        owed, answer = received
        self._failed_starts = 0
        if owed.wanted:
            self._take(owed, answer)

    def _blame(self, process: WorkerProcess) -> None:
        """Counts a death against the episode whose answer was next; workers answer in order."""
        if process.ready:
            if process.owed[0].wanted:
                reason = f"its worker died or hung {MAX_FAULTS} times in a row"
                self._count_fault(process.owed[0], reason, deadly=True)
            return
        self._failed_starts += 1
        if self._failed_starts == MAX_FAULTS:
            raise DomainError(
                f"domain {self._source.name}: its workers die at the start; see their messages"
                " above, or use 0 workers to play in this process"
            )

    def _replace(self, number: int) -> None:
        """Starts a new worker that continues the old one's open episodes."""
        self._blame(self._workers[number])
        self.restarts += 1
        self._workers[number].end(at_once=True)
        self._workers[number] = self._start(number)
        # Queued plays need no copy: replays are followed by the last response.
        self._workers[number].queue = [
            episode.replay()
            for episode in self._episodes.values()
            if episode.worker == number and episode.open and episode.failure is None
        ]
        self._workers[number].hand_over()

    def _start(self, number: int) -> WorkerProcess:
        return WorkerProcess(self._launches[number], self._source, self._timeout_seconds)


def _has_size(path: Path, size: int) -> bool:
    """Whether a file is whole; after a power cut it may be empty."""
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _opened(answer: Answer) -> Observation | EpisodeError:
    assert not isinstance(answer, StepResult)
    return answer


def _stepped(answer: Answer) -> StepResult | EpisodeError:
    assert not isinstance(answer, Observation)
    return answer
