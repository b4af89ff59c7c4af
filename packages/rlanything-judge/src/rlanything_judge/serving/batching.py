"""A judge shared by several callers, whose episodes are judged in batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.roles.judges.base import Judge
from rlanything.seeds import derive

TOGETHER = 128
"""Largest batch in episodes, unless a single caller sends more."""


class BusyError(Exception):
    """Too many episodes are waiting."""


@dataclass(eq=False, slots=True)
class _Asked:
    """The episodes of one caller."""

    trajectories: Sequence[Trajectory]
    seed: int
    answer: Future[list[JudgedTrajectory]] = field(default_factory=Future)


class BatchingJudge:
    """A judge in its own thread, shared by callers. A context manager.

    Waiting callers with the same seed are judged in one batch, so that the engine computes the
    prefix their prompts share once. Apart from rounding, judgements do not depend on the batch."""

    def __init__(self, judge: Judge, most_waiting: int) -> None:
        """`most_waiting`: largest number of waiting episodes."""
        self._judge = judge
        self._most = most_waiting
        self._waiting: deque[_Asked] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="judge", daemon=True)
        self.trajectories = self.judgements = self.unreadable = 0
        """Counts so far; `unreadable` ones are judgements without a score."""

    def __enter__(self) -> BatchingJudge:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            for asked in self._waiting:
                asked.answer.cancel()
            self._waiting.clear()
            self._changed.notify()
        self._thread.join()

    @property
    def waiting(self) -> int:
        """Number of waiting episodes."""
        return sum(len(asked.trajectories) for asked in tuple(self._waiting))

    def ask(self, trajectories: Sequence[Trajectory], seed: int) -> Future[list[JudgedTrajectory]]:
        """Returns a future of the judged trajectories; one cancelled before its turn is skipped.
        Raises `BusyError` if too many episodes are waiting."""
        asked = _Asked(trajectories, seed)
        with self._changed:
            if self._waiting and self.waiting + len(trajectories) > self._most:
                raise BusyError
            self._waiting.append(asked)
            self._changed.notify()
        return asked.answer

    def _work(self) -> None:
        while batch := self._next_batch():
            trajectories = [trajectory for asked in batch for trajectory in asked.trajectories]
            try:
                judged = self._judge.judge(trajectories, derive(batch[0].seed, "judge"))
            except Exception as fault:  # fails this batch only
                for asked in batch:
                    asked.answer.set_exception(fault)
                continue
            self._count(judged)
            rest = iter(judged)
            for asked in batch:
                asked.answer.set_result([next(rest) for _ in asked.trajectories])

    def _next_batch(self) -> list[_Asked]:
        """Returns the first waiting request and others with its seed, in order; [] once closed."""
        batch: list[_Asked] = []
        size = 0
        with self._changed:
            while not batch and not self._closed:  # waiting callers may have given up
                self._changed.wait_for(lambda: self._waiting or self._closed)
                for asked in tuple(self._waiting):
                    fits = size + len(asked.trajectories) <= TOGETHER
                    if batch and not (fits and asked.seed == batch[0].seed):
                        continue
                    self._waiting.remove(asked)
                    if asked.answer.set_running_or_notify_cancel():
                        batch.append(asked)
                        size += len(asked.trajectories)
        return batch

    def _count(self, judged: Sequence[JudgedTrajectory]) -> None:
        scores = [score for episode in judged for step in episode.scores for score in step]
        self.trajectories += len(judged)
        self.judgements += len(scores)
        self.unreadable += scores.count(0)
