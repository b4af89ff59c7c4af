"""Views of a run, read from its store again whenever the run has written something.

A store is open only while it is read, and read-only: no file of the run changes, and a run that
ends meanwhile can close its store as if nobody watched."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlanything.runs.directory import find_holder
from rlanything.runs.lineage import read_lineage
from rlanything.runs.paths import STORE
from rlanything.runs.report.facts import Facts, Reader
from rlanything.runs.report.history import Episode
from rlanything.runs.store.store import Store
from rlanything.runs.store.stored import ForgottenError, StoredTrajectory


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one moment."""

    facts: Facts
    slots: tuple[Mapping[str, Any], ...]
    """Records of `read_lineage`."""
    episodes: tuple[Episode, ...]
    """All episodes of training in the order of the store."""
    chosen: int | None
    """Index of the chosen episode in `episodes`; None before the first."""
    played: StoredTrajectory | None
    """The chosen episode with its texts; None if the run has forgotten them."""

    @property
    def instructions(self) -> dict[str, str]:
        """The instruction of each task that has one, by the task's id."""
        events = [event for slot in self.slots for event in slot["history"]]
        known = {slot["slot"]: slot["root"] for slot in self.slots}
        known |= {event["task"]: event["instruction"] for event in events}
        return {task: text for task, text in known.items() if text}


class RunSource:
    """Reads one run, each iteration once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._reader: Reader | None = None
        self._seen: tuple[object, ...] | None = None
        """State of the run's files and the chosen episode at the last read."""

    def check(self) -> None:
        """Raises `StoreError` or `RunDirectoryError` if there is no run that can be read."""
        Store(self.directory / STORE, read_only=True).close()

    def read(self, episode: str | None) -> RunView | None:
        """Returns the run with the episode of this id, or (None) with its newest; None if nothing
        new can be read since the last call. Raises `StoreError` or `RunDirectoryError` if the run
        cannot be read."""
        store, holder = self.directory / STORE, find_holder(self.directory)
        # A run that goes on may have gone back to a checkpoint before.
        stamp = _stamp(store)
        history = (holder, stamp[:1])
        seen = (history, stamp, _commits(store), episode)
        if seen == self._seen:
            return None
        if self._seen is None or self._seen[0] != history:
            self._reader = None
        self._seen = None  # a read that fails is repeated
        with (
            closing(Store(store, read_only=True)) as opened,
            opened.snapshot(),
            opened.understanding(),
        ):
            if self._reader is None:
                opened.check_values()
                self._reader = Reader(opened, self.directory)
            self._reader.reopen(opened)
            view = self._view(self._reader, episode)
        self._seen = seen
        return view

    def _view(self, reader: Reader, wanted: str | None) -> RunView:
        episodes = tuple(e for t in reader.iterations() for e in reader.history.episodes(t))
        chosen = len(episodes) - 1 if episodes else None
        for place, episode in enumerate(episodes):
            if episode.id == wanted:
                chosen = place
        slots = tuple(read_lineage(reader.store))
        played = None if chosen is None else _played(reader, episodes[chosen])
        facts = reader.facts()
        named = isinstance(facts.name, str) and isinstance(facts.planned, int | None)
        if not named or (facts.planned or 0) > 10**9:
            raise TypeError("the recipe was not written by a run")
        return RunView(facts, slots, episodes, chosen, played)


def _played(reader: Reader, episode: Episode) -> StoredTrajectory | None:
    """Returns an episode with its texts; tests that all programs of a task share are stored with
    the first program only."""
    with suppress(ForgottenError):
        played = reader.store.trajectory(episode.id)
        group = [e for e in reader.history.episodes(episode.iteration) if e.task == episode.task]
        own = any(each.completion.text for step in played.steps for each in step.judgements)
        if own or len(played.steps) != 1 or group[0].id == episode.id:
            return played
        shared = reader.store.trajectory(group[0].id).steps[0].judgements
        pairs = zip(played.steps[0].judgements, shared, strict=False)
        said = tuple(replace(own, completion=other.completion) for own, other in pairs)
        return replace(played, steps=(replace(played.steps[0], judgements=said),))
    return None


def _commits(store: Path) -> bytes:
    """Returns the header of the log's index, which changes when a commit can be read. The log
    itself changes earlier, before the disk has confirmed the commit."""
    try:
        with open(store.with_name(f"{STORE}-shm"), "rb") as file:
            return file.read(48)
    except OSError:
        return b""


def _stamp(path: Path) -> tuple[int, ...]:
    """Returns inode, size and time of change of a file; empty if it does not exist."""
    try:
        about = path.stat()
    except OSError:
        return ()
    return about.st_ino, about.st_size, about.st_mtime_ns
