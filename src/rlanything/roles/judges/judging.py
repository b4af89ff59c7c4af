"""Judgements of an iteration's episodes, which may begin while others are still being played."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.roles.judges.base import OnJudgements
from rlanything.roles.judges.panel import JudgePanel


class Judging:
    """Judges the episodes of one iteration: those that are added in a thread, in one call all that
    were added during the last one.

    A judgement depends on its episode and its seed only, so the results are the same. An episode
    may be added early if all judges are elsewhere: others share this process and its hardware."""

    def __init__(self, panel: JudgePanel, seeds: Mapping[str, int]) -> None:
        """`seeds` by judge."""
        self._panel = panel
        self._seeds = seeds
        self._changed = threading.Condition()
        self._added: list[Trajectory] = []
        self._all_added = False
        self._stopped = False
        self._judged: dict[str, JudgedTrajectory] = {}
        self._error: Exception | None = None
        self._done = 0
        self._on_judgements: OnJudgements | None = None
        self._thread: threading.Thread | None = None

    @property
    def early(self) -> Callable[[Sequence[Trajectory]], None] | None:
        """`add`, if episodes may be judged early."""
        return self.add if self._panel.elsewhere else None

    def __enter__(self) -> Judging:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Judges no more: a call under way ends at its next answer, and the thread with it."""
        with self._changed:
            self._stopped = True
            self._added = []
            self._all_added = True
            self._changed.notify()

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        """Begins to judge episodes that have ended. Raises the judges' errors."""
        if self._error is not None:
            raise self._error
        with self._changed:
            self._added += trajectories
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="judging", daemon=True)
            self._thread.start()

    def finish(
        self, trajectories: Sequence[Trajectory], on_judgements: OnJudgements
    ) -> list[JudgedTrajectory]:
        """Returns these trajectories judged, also those that were not added. Raises the judges'
        errors."""
        with self._changed:
            self._all_added = True
            self._on_judgements = on_judgements
            if self._done:
                on_judgements(self._done)
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        rest = [one for one in trajectories if one.id not in self._judged]
        judged = self._panel.judge(rest, self._seeds, on_judgements)
        self._judged |= {one.trajectory.id: one for one in judged}
        return [self._judged[one.id] for one in trajectories]

    def _run(self) -> None:
        while batch := self._next():
            try:
                judged = self._panel.judge(batch, self._seeds, self._tell)
            except Exception as error:
                self._error = error
                return
            self._judged |= {one.trajectory.id: one for one in judged}

    def _next(self) -> list[Trajectory]:
        """Returns what was added meanwhile; empty if nothing will be."""
        with self._changed:
            self._changed.wait_for(lambda: self._added or self._all_added)
            batch, self._added = self._added, []
            return batch

    def _tell(self, judgements: int) -> None:
        with self._changed:
            if self._stopped:  # ends the call, which cancels its other requests
                raise RuntimeError("judging was stopped")
            self._done += judgements
            if self._on_judgements is not None:
                self._on_judgements(judgements)
