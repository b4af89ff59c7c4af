"""What a run remembers, in one SQLite file: readable while it grows, one commit an iteration.

Everything the feedback is computed from is here: outcomes, scores, sampled tokens and log-probs,
and the samples the learners were given. A prompt is kept as the hash of its token ids.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlanything.curriculum import Pool
from rlanything.experience import Group
from rlanything.records import Completion, JudgedTrajectory, Sample

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE iterations (iteration INTEGER PRIMARY KEY, finished TEXT NOT NULL, checkpoint TEXT);
CREATE TABLE metrics (
  iteration INTEGER NOT NULL, name TEXT NOT NULL, value REAL,
  PRIMARY KEY (iteration, name)) WITHOUT ROWID;
CREATE TABLE tasks (
  id TEXT PRIMARY KEY, slot TEXT NOT NULL, instruction TEXT NOT NULL, kind TEXT NOT NULL,
  data TEXT NOT NULL);
CREATE TABLE slots (slot TEXT PRIMARY KEY, active TEXT NOT NULL, pending TEXT, accuracy REAL);
CREATE TABLE slot_events (
  slot TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, iteration INTEGER NOT NULL,
  task TEXT NOT NULL, direction TEXT NOT NULL, parent_accuracy REAL NOT NULL,
  candidate_accuracy REAL, reason TEXT NOT NULL, PRIMARY KEY (slot, number)) WITHOUT ROWID;
CREATE TABLE proposals (
  iteration INTEGER NOT NULL, slot TEXT NOT NULL, task TEXT, critics TEXT NOT NULL,
  refused TEXT NOT NULL, PRIMARY KEY (iteration, slot)) WITHOUT ROWID;
CREATE TABLE groups (
  iteration INTEGER NOT NULL, task TEXT NOT NULL, slot TEXT NOT NULL, candidate INTEGER NOT NULL,
  accuracy REAL NOT NULL, PRIMARY KEY (iteration, task)) WITHOUT ROWID;
CREATE TABLE trajectories (
  id TEXT PRIMARY KEY, iteration INTEGER NOT NULL, task TEXT NOT NULL, outcome INTEGER NOT NULL,
  steps INTEGER NOT NULL);
CREATE INDEX trajectories_of_iteration ON trajectories (iteration);
CREATE TABLE steps (
  trajectory TEXT NOT NULL, step INTEGER NOT NULL, observation TEXT NOT NULL,
  response TEXT NOT NULL, action TEXT, valid INTEGER NOT NULL, next_observation TEXT NOT NULL,
  label INTEGER, prompt_hash BLOB NOT NULL, token_ids BLOB NOT NULL, logprobs BLOB NOT NULL,
  PRIMARY KEY (trajectory, step)) WITHOUT ROWID;
CREATE TABLE judgements (
  trajectory TEXT NOT NULL, step INTEGER NOT NULL, judgement INTEGER NOT NULL, text TEXT NOT NULL,
  score INTEGER NOT NULL, prompt_hash BLOB NOT NULL, token_ids BLOB NOT NULL,
  logprobs BLOB NOT NULL, PRIMARY KEY (trajectory, step, judgement)) WITHOUT ROWID;
CREATE TABLE samples (
  iteration INTEGER NOT NULL, role TEXT NOT NULL, source TEXT NOT NULL, advantage REAL NOT NULL,
  prompt_hash BLOB NOT NULL, token_ids BLOB NOT NULL, logprobs BLOB NOT NULL,
  PRIMARY KEY (role, source)) WITHOUT ROWID;
CREATE TABLE failures (iteration INTEGER NOT NULL, task TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE evaluations (
  iteration INTEGER NOT NULL, split TEXT NOT NULL, task TEXT NOT NULL, kind TEXT NOT NULL,
  outcome INTEGER NOT NULL, steps INTEGER NOT NULL,
  PRIMARY KEY (iteration, split, task)) WITHOUT ROWID;
"""


class StoreError(ValueError):
    """The store cannot be opened; the message is one line with the remedy."""


class Store:
    """The `run.sqlite` of a run directory."""

    def __init__(self, path: Path) -> None:
        """Opens a store. Raises `StoreError` if there is none or it is another version's."""
        if not path.is_file():
            raise StoreError(f"{path.parent} is not a run directory: it has no {path.name}")
        self._db = sqlite3.connect(path)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{path}: {error}; the file is damaged, restore a copy") from None
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{path} has schema {version}, this version reads {SCHEMA_VERSION}: "
                "open it with the version of rlanything that wrote it"
            )

    @classmethod
    def create(cls, path: Path) -> Store:
        db = sqlite3.connect(path)
        db.executescript(_SCHEMA)
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        db.commit()
        db.close()
        return cls(path)

    def close(self) -> None:
        self._db.close()

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._db.execute(sql, values).fetchall()

    def describe(self, facts: Mapping[str, str]) -> None:
        """Facts about the run as a whole."""
        with self._db:
            self._db.executemany("INSERT OR REPLACE INTO run VALUES (?, ?)", facts.items())

    def record_evaluation(
        self, iteration: int, split: str, judged: Sequence[tuple[str, str, int, int]]
    ) -> None:
        """Rows of (task, kind, outcome, steps)."""
        with self._db:
            self._db.executemany(
                "INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?)",
                [(iteration, split, *row) for row in judged],
            )

    def record_iteration(
        self,
        iteration: int,
        *,
        groups: Sequence[Group],
        labels: Mapping[str, Sequence[int]],
        samples: Mapping[str, Sequence[Sample]],
        proposals: Sequence[tuple[str, str | None, Sequence[str], Sequence[str]]],
        failures: Sequence[tuple[str, str]],
        pool: Pool,
        metrics: Mapping[str, float | None],
        checkpoint: str,
        finished: str,
    ) -> None:
        """One transaction: an iteration is here entirely or not at all.

        `labels`: the oracle's, by trajectory. `samples`: by role, as the learners were given them.
        `proposals`: (slot, candidate, critics, refused tries). `failures`: (task, reason)."""
        with self._db:
            self._write_pool(pool)
            for group in groups:
                entry = group.entry
                self._db.execute(
                    "INSERT INTO groups VALUES (?, ?, ?, ?, ?)",
                    (iteration, entry.task.id, entry.slot, entry.candidate, group.accuracy),
                )
                for judged in group.judged:
                    self._write_trajectory(iteration, judged, labels)
            for role, given in samples.items():
                self._db.executemany(
                    "INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?)",
                    [
                        (iteration, role, s.source, s.advantage, *_tokens(s.completion))
                        for s in given
                    ],
                )
            self._db.executemany(
                "INSERT INTO proposals VALUES (?, ?, ?, ?, ?)",
                [
                    (iteration, slot, task, json.dumps(critics), json.dumps(refused))
                    for slot, task, critics, refused in proposals
                ],
            )
            self._db.executemany(
                "INSERT INTO failures VALUES (?, ?, ?)",
                [(iteration, task, reason) for task, reason in failures],
            )
            self._write_metrics(iteration, metrics)
            self._db.execute(
                "INSERT INTO iterations VALUES (?, ?, ?)", (iteration, finished, checkpoint)
            )

    def record_metrics(self, iteration: int, metrics: Mapping[str, float | None]) -> None:
        with self._db:
            self._write_metrics(iteration, metrics)

    def _write_metrics(self, iteration: int, metrics: Mapping[str, float | None]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO metrics VALUES (?, ?, ?)",
            [(iteration, name, value) for name, value in sorted(metrics.items())],
        )

    def _write_pool(self, pool: Pool) -> None:
        for slot in pool.slots:
            tasks = [slot.root, slot.active, *([slot.pending.task] if slot.pending else [])]
            self._db.executemany(
                "INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?, ?)",
                [
                    (t.id, slot.id, t.instruction, t.kind, json.dumps(t.data, sort_keys=True))
                    for t in tasks
                ],
            )
            self._db.execute(
                "INSERT OR REPLACE INTO slots VALUES (?, ?, ?, ?)",
                (
                    slot.id,
                    slot.active.id,
                    slot.pending.task.id if slot.pending else None,
                    slot.accuracy,
                ),
            )
            self._db.executemany(
                "INSERT OR IGNORE INTO slot_events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        slot.id,
                        number,
                        event.kind,
                        event.iteration,
                        event.task_id,
                        event.direction,
                        event.parent_accuracy,
                        event.candidate_accuracy,
                        event.reason,
                    )
                    for number, event in enumerate(slot.history)
                ],
            )

    def _write_trajectory(
        self, iteration: int, judged: JudgedTrajectory, labels: Mapping[str, Sequence[int]]
    ) -> None:
        trajectory = judged.trajectory
        known = labels.get(trajectory.id)
        self._db.execute(
            "INSERT INTO trajectories VALUES (?, ?, ?, ?, ?)",
            (
                trajectory.id,
                iteration,
                trajectory.task.id,
                trajectory.outcome,
                len(trajectory.steps),
            ),
        )
        self._db.executemany(
            "INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    trajectory.id,
                    i,
                    step.observation,
                    step.response,
                    step.action,
                    step.valid,
                    step.next_observation,
                    known[i] if known is not None else None,
                    *_tokens(step.completion),
                )
                for i, step in enumerate(trajectory.steps)
            ],
        )
        self._db.executemany(
            "INSERT INTO judgements VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (trajectory.id, i, j, each.completion.text, each.score, *_tokens(each.completion))
                for i, judgements in enumerate(judged.judgements)
                for j, each in enumerate(judgements)
            ],
        )


def _tokens(completion: Completion) -> tuple[bytes, bytes, bytes]:
    """Hash of the prompt ids, token ids (int32) and log-probs (float64)."""
    return (
        prompt_hash(completion.prompt_ids),
        array("i", completion.token_ids).tobytes(),
        array("d", completion.logprobs).tobytes(),
    )


def prompt_hash(ids: Iterable[int]) -> bytes:
    """16 bytes that stand for a prompt."""
    return hashlib.blake2b(array("i", ids).tobytes(), digest_size=16).digest()
