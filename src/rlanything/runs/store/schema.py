"""The tables of a run's store.

Numbers and short words are columns for SQL queries; texts are compressed, one row of `transcripts`
per episode (`codec.py`). Rows refer to their episode by number, because ids are long and there are
millions of judgements."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache

SCHEMA_VERSION = 8
"""Version of the schema; raise it with every change of `TABLES`."""

TABLES = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- A slot is named after its root task.
CREATE TABLE tasks (
  id TEXT PRIMARY KEY, slot TEXT NOT NULL REFERENCES tasks, instruction TEXT NOT NULL,
  kind TEXT NOT NULL, data TEXT NOT NULL);
CREATE TABLE slots (
  slot TEXT PRIMARY KEY REFERENCES tasks, active TEXT NOT NULL REFERENCES tasks,
  pending TEXT REFERENCES tasks, accuracy REAL) WITHOUT ROWID;
CREATE TABLE slot_events (
  slot TEXT NOT NULL REFERENCES slots, number INTEGER NOT NULL, kind TEXT NOT NULL,
  iteration INTEGER NOT NULL, task TEXT NOT NULL REFERENCES tasks, direction TEXT NOT NULL,
  parent_accuracy REAL NOT NULL, candidate_accuracy REAL, reason TEXT NOT NULL,
  PRIMARY KEY (slot, number)) WITHOUT ROWID;
CREATE TABLE quarantine (
  task TEXT PRIMARY KEY, iteration INTEGER NOT NULL, reason TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE iterations (
  iteration INTEGER PRIMARY KEY, finished TEXT NOT NULL, checkpoint TEXT NOT NULL);
CREATE TABLE proposals (
  iteration INTEGER NOT NULL REFERENCES iterations ON DELETE CASCADE,
  slot TEXT NOT NULL REFERENCES slots, task TEXT REFERENCES tasks, critics TEXT NOT NULL,
  refused TEXT NOT NULL, PRIMARY KEY (iteration, slot)) WITHOUT ROWID;
-- Rollouts that could not be played to their end, and those lost by a fault at a response.
CREATE TABLE failures (
  iteration INTEGER NOT NULL REFERENCES iterations ON DELETE CASCADE,
  task TEXT NOT NULL REFERENCES tasks, reason TEXT NOT NULL);
CREATE TABLE groups (
  iteration INTEGER NOT NULL REFERENCES iterations ON DELETE CASCADE,
  task TEXT NOT NULL REFERENCES tasks, slot TEXT NOT NULL REFERENCES slots,
  candidate INTEGER NOT NULL, accuracy REAL NOT NULL, PRIMARY KEY (iteration, task)) WITHOUT ROWID;
CREATE TABLE trajectories (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, iteration INTEGER NOT NULL,
  task TEXT NOT NULL, outcome INTEGER NOT NULL, steps INTEGER NOT NULL, reward REAL,
  FOREIGN KEY (iteration, task) REFERENCES groups ON DELETE CASCADE);
CREATE INDEX trajectories_of_group ON trajectories (iteration, task);
CREATE TABLE transcripts (
  trajectory INTEGER PRIMARY KEY REFERENCES trajectories ON DELETE CASCADE,
  texts BLOB NOT NULL, token_ids BLOB NOT NULL, logprobs BLOB NOT NULL, prompts BLOB NOT NULL);

-- `role`: the role that wrote the response, or the judgement. An advantage is there where it was
-- trained on.
CREATE TABLE steps (
  trajectory INTEGER NOT NULL REFERENCES trajectories ON DELETE CASCADE, step INTEGER NOT NULL,
  role TEXT NOT NULL, action TEXT, valid INTEGER NOT NULL, label INTEGER, advantage REAL,
  image TEXT, next_image TEXT, PRIMARY KEY (trajectory, step)) WITHOUT ROWID;
CREATE TABLE judgements (
  trajectory INTEGER NOT NULL, step INTEGER NOT NULL, judgement INTEGER NOT NULL,
  role TEXT NOT NULL, score INTEGER NOT NULL, advantage REAL,
  PRIMARY KEY (trajectory, step, judgement),
  FOREIGN KEY (trajectory, step) REFERENCES steps ON DELETE CASCADE) WITHOUT ROWID;
CREATE VIEW samples (iteration, role, source, advantage) AS
  SELECT iteration, role, id || '/' || step, advantage
    FROM steps JOIN trajectories ON number = trajectory WHERE advantage IS NOT NULL
  UNION ALL
  SELECT iteration, role, id || '/' || step || '/' || judgement, advantage
    FROM judgements JOIN trajectories ON number = trajectory WHERE advantage IS NOT NULL;

-- Iteration 0 is before training: these refer to no row of `iterations`.
CREATE TABLE metrics (
  iteration INTEGER NOT NULL, name TEXT NOT NULL, value REAL,
  PRIMARY KEY (iteration, name)) WITHOUT ROWID;
-- An outcome of 0: the episode could not be played.
CREATE TABLE evaluations (
  iteration INTEGER NOT NULL, split TEXT NOT NULL, task TEXT NOT NULL,
  attempt INTEGER NOT NULL, kind TEXT NOT NULL,
  outcome INTEGER NOT NULL, steps INTEGER NOT NULL,
  PRIMARY KEY (iteration, split, task, attempt)) WITHOUT ROWID;
-- What each judge got right in its evaluation, by episode or task and by what was counted.
CREATE TABLE judge_eval_counts (
  iteration INTEGER NOT NULL, role TEXT NOT NULL, item TEXT NOT NULL, measure TEXT NOT NULL,
  hits INTEGER NOT NULL, total INTEGER NOT NULL,
  PRIMARY KEY (iteration, role, item, measure)) WITHOUT ROWID;
-- The held-out episodes that every evaluation of judges is about, with a JSON list of the labels of
-- their steps where there are any.
CREATE TABLE judge_eval_episodes (number INTEGER PRIMARY KEY, episode TEXT NOT NULL, labels TEXT);
"""

IN_SCHEMA = (
    "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_stat%' ESCAPE '\\'"
)
"""Query for the contents of a store's schema, without those of ANALYZE."""


RANGES = {
    ("trajectories", "outcome"): "IN (-1, 1)",
    ("evaluations", "outcome"): "IN (-1, 0, 1)",
    ("judgements", "score"): "IN (-1, 0, 1)",
    ("slot_events", "kind"): "IN ('proposed', 'accepted', 'rejected')",
    ("slot_events", "parent_accuracy"): "BETWEEN 0 AND 1",
    ("slot_events", "candidate_accuracy"): "BETWEEN 0 AND 1",
    ("slots", "accuracy"): "BETWEEN 0 AND 1",
    ("groups", "accuracy"): "BETWEEN 0 AND 1",
    **{
        (table, "iteration"): "BETWEEN 0 AND 1000000000"
        for table in ("metrics", "evaluations", "iterations", "groups", "slot_events")
    },
}
"""Valid values of columns whose type is less specific."""
LISTS = (("proposals", "critics"), ("proposals", "refused"))
"""Columns with a JSON list."""


@cache
def strange_values() -> dict[str, dict[str, str]]:
    """Returns the conditions for invalid values, by table and column."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(TABLES)
        tables = [name for _, name, _ in db.execute(IN_SCHEMA + " AND type = 'table'")]
        conditions: dict[str, dict[str, str]] = {table: {} for table in tables}
        for table in tables:
            for _, name, kind, required, _, key in db.execute(f"PRAGMA table_info({table})"):
                kinds = [kind.lower(), *([] if required or key else ["null"])]
                strange = f"typeof({name}) NOT IN ({', '.join(map(repr, kinds))})"
                if (table, name) in RANGES:
                    strange += f" OR NOT {name} {RANGES[table, name]}"
                if (table, name) in LISTS:
                    listed = f"json_valid({name}) THEN json_type({name}) = 'array'"
                    strange += f" OR NOT CASE WHEN {listed} ELSE 0 END"
                conditions[table][name] = strange
        return conditions


@cache
def expected_schema() -> frozenset[tuple[str, str, str | None]]:
    """Returns the rows of `IN_SCHEMA` in a new store."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(TABLES)
        return frozenset(db.execute(IN_SCHEMA))


BY_ITERATION = (
    "iterations",
    "metrics",
    "evaluations",
    "judge_eval_counts",
    "quarantine",
    "slot_events",
)
"""Tables with an iteration column, whose rows are deleted with their iteration; other tables
cascade from `iterations`."""

CONTENT = {
    "iterations": "SELECT iteration, checkpoint FROM iterations ORDER BY 1",
    "metrics": "SELECT * FROM metrics WHERE name NOT LIKE 'seconds/%'"
    " AND name NOT LIKE 'memory/%' ORDER BY 1, 2",
    "evaluations": "SELECT * FROM evaluations ORDER BY 1, 2, 3, 4",
    "judge_eval_counts": "SELECT * FROM judge_eval_counts ORDER BY 1, 2, 3, 4",
    "judge_eval_episodes": "SELECT * FROM judge_eval_episodes ORDER BY 1",
    "tasks": "SELECT * FROM tasks ORDER BY 1",
    "slots": "SELECT * FROM slots ORDER BY 1",
    "slot_events": "SELECT * FROM slot_events ORDER BY 1, 2",
    "quarantine": "SELECT * FROM quarantine ORDER BY 1",
    "proposals": "SELECT * FROM proposals ORDER BY 1, 2",
    "failures": "SELECT * FROM failures ORDER BY 1, 2, 3",
    "groups": "SELECT * FROM groups ORDER BY 1, 2",
    "trajectories": "SELECT id, iteration, task, outcome, steps, reward FROM trajectories"
    " ORDER BY 1",
    "steps": "SELECT id, step, role, action, valid, label, advantage, image, next_image FROM steps"
    " JOIN trajectories ON number = trajectory ORDER BY 1, 2",
    "judgements": "SELECT id, step, judgement, role, score, advantage FROM judgements"
    " JOIN trajectories ON number = trajectory ORDER BY 1, 2, 3",
}
"""Queries for the results of a run, without times, row numbers and transcripts; one per table."""
