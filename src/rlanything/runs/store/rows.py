"""Writes iterations and evaluations as rows of the store, inside the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from rlanything.algorithm.curriculum import Pool
from rlanything.records import Completion, JudgedTrajectory, Judgement
from rlanything.runs.results import EvaluationRecord, IterationRecord, Numbers
from rlanything.runs.store.codec import encode_episode, to_json

if TYPE_CHECKING:  # which imports torch
    from rlanything.loop import IterationResult


def storable(text: str) -> str:
    """Returns the text with question marks for halves of surrogate pairs, which SQLite rejects.
    Transcripts keep them."""
    return text.encode("utf-8", "replace").decode()


class UnstoredSamples:
    """The samples of all roles whose step or judgement is not written yet."""

    def __init__(self, result: IterationResult) -> None:
        samples = result.samples
        self._left = {(role, s.source): s for role, given in samples.items() for s in given}
        if len(self._left) < sum(map(len, samples.values())):
            raise ValueError("a response or judgement trained twice")

    def advantage(self, role: str, source: str, completion: Completion) -> float | None:
        """Returns the advantage of a completion; None if the role did not train on it."""
        sample = self._left.pop((role, source), None)
        if sample is None:
            return None
        if sample.completion != completion:
            raise ValueError(f"sample {source} trained on other tokens than were sampled")
        return sample.mean_advantage

    def check_all_taken(self) -> None:
        if self._left:
            role, source = next(iter(self._left))
            raise ValueError(f"{role} sample {source} is of no trajectory of this iteration")


def write_iteration(db: sqlite3.Connection, record: IterationRecord) -> None:
    """Writes the results of an iteration. Raises ValueError as `Store.record_iteration` does."""
    result, iteration = record.result, record.number
    samples = UnstoredSamples(result)
    db.execute(
        "INSERT INTO iterations VALUES (?, ?, ?)", (iteration, record.finished, record.checkpoint)
    )
    write_pool(db, record.pool, iteration)
    for group in result.groups:
        entry = group.scheduled
        db.execute(
            "INSERT INTO groups VALUES (?, ?, ?, ?, ?)",
            (iteration, entry.task.id, entry.slot, entry.candidate, group.accuracy),
        )
        written: set[int] = set()
        for judged in group.judged:
            write_trajectory(db, record, judged, samples, written)
    samples.check_all_taken()
    db.executemany(
        "INSERT INTO proposals VALUES (?, ?, ?, ?, ?)",
        [
            (
                iteration,
                proposal.slot,
                proposal.task.id if proposal.task else None,
                json.dumps(proposal.critics),
                json.dumps([f"{refusal.stage}: {refusal.text}" for refusal in proposal.refused]),
            )
            for proposal in result.proposals
        ],
    )
    db.executemany(
        "INSERT INTO failures VALUES (?, ?, ?)",
        [
            (iteration, failure.task_id, storable(failure.reason))
            for failure in (*result.failures, *result.crashes)
        ],
    )
    write_metrics(db, iteration, record.metrics)


def write_pool(db: sqlite3.Connection, pool: Pool, iteration: int) -> None:
    """Writes slots with their history and tasks; and quarantined tasks, with this iteration if they
    are new."""
    recorded = {task for (task,) in db.execute("SELECT id FROM tasks")}
    for slot in pool.slots:
        tasks = [slot.root, slot.active, *([slot.pending.task] if slot.pending else [])]
        for task in tasks:
            if task.id not in recorded:
                recorded.add(task.id)
                data = json.dumps(task.data, sort_keys=True)
                db.execute(
                    "INSERT INTO tasks VALUES (?, ?, ?, ?, ?)",
                    (task.id, slot.id, storable(task.instruction), task.kind, data),
                )
    db.executemany(
        "INSERT INTO slots VALUES (?1, ?2, ?3, ?4)"
        " ON CONFLICT DO UPDATE SET active = ?2, pending = ?3, accuracy = ?4",
        [
            (s.id, s.active.id, s.pending.task.id if s.pending else None, s.accuracy)
            for s in pool.slots
        ],
    )
    db.executemany(
        "INSERT OR IGNORE INTO quarantine VALUES (?, ?, ?)",
        [
            (task, iteration, storable(reason))
            for slot in pool.slots
            for task, reason in slot.quarantined.items()
        ],
    )
    db.execute("DELETE FROM slot_events")
    db.executemany(
        "INSERT INTO slot_events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
                storable(event.reason),
            )
            for slot in pool.slots
            for number, event in enumerate(slot.history)
        ],
    )


def write_trajectory(
    db: sqlite3.Connection,
    record: IterationRecord,
    judged: JudgedTrajectory,
    samples: UnstoredSamples,
    written: set[int],
) -> None:
    """Writes an episode of an iteration. `written`: the judgements of its group that have been
    written, by object identity of the completion: a shared judgement is written with the first
    trajectory."""
    trajectory = judged.trajectory
    name, acting = trajectory.id, record.result.acting
    known = {v.player: record.labels[v.id] for v in trajectory.views if v.id in record.labels}
    labels = trajectory.in_order(known) if len(known) == len(trajectory.views) else None
    number = db.execute(
        "INSERT INTO trajectories (id, iteration, task, outcome, steps, reward)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            name,
            record.number,
            trajectory.task.id,
            trajectory.outcome,
            len(trajectory.steps),
            trajectory.reward,
        ),
    ).lastrowid
    db.executemany(
        "INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                number,
                i,
                step.player or acting,
                storable(step.action) if step.action is not None else None,
                step.valid,
                labels[i] if labels is not None else None,
                samples.advantage(step.player or acting, f"{name}/{i}", step.completion),
                step.image,
                step.next_image,
            )
            for i, step in enumerate(trajectory.steps)
        ],
    )
    db.executemany(
        "INSERT INTO judgements VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                number,
                i,
                j,
                judgement.by,
                int(judgement.score),  # The store does not accept numpy numbers.
                samples.advantage(judgement.by, f"{name}/{i}/{j}", judgement.completion),
            )
            for i, judgements in enumerate(judged.judgements)
            for j, judgement in enumerate(judgements)
        ],
    )
    encoded = encode_episode(_without(judged, written))
    db.execute("INSERT INTO transcripts VALUES (?, ?, ?, ?, ?)", (number, *astuple(encoded)))
    written.update(id(each.completion) for step in judged.judgements for each in step)


def _without(judged: JudgedTrajectory, written: AbstractSet[int]) -> JudgedTrajectory:
    """Returns the trajectory with empty texts for judgements that are already written."""

    def once(judgement: Judgement) -> Judgement:
        again = id(judgement.completion) in written
        return replace(judgement, completion=Completion.unsampled("")) if again else judgement

    return JudgedTrajectory(
        judged.trajectory, tuple(tuple(map(once, step)) for step in judged.judgements)
    )


def write_evaluation(db: sqlite3.Connection, record: EvaluationRecord) -> None:
    """Writes an evaluation. The rows of one task are its attempts, in order."""
    for evaluation in record.evaluations:
        attempts = Counter[str]()
        rows: list[tuple[int, str, str, int, str, int, int]] = []
        ended = [(t.task, t.outcome, len(t.steps)) for t in evaluation.trajectories]
        for task, outcome, steps in (*ended, *((task, 0, 0) for task in evaluation.unplayable)):
            row = (task.id, attempts[task.id], task.kind, outcome, steps)
            rows.append((record.number, evaluation.split, *row))
            attempts[task.id] += 1
        db.executemany("INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    db.executemany(
        "INSERT INTO judge_eval_counts VALUES (?, ?, ?, ?, ?, ?)",
        [
            (record.number, judge, item, measure, int(hits), int(total))
            for judge, evaluation in record.judges.items()
            for item, counts in evaluation.counts.items()
            for measure, (hits, total) in counts.items()
        ],
    )
    labels = record.labels
    db.executemany(
        "INSERT INTO judge_eval_episodes (episode, labels) VALUES (?, ?)",
        [
            (to_json(played), json.dumps(list(labels[played.id])) if played.id in labels else None)
            for played in record.judge_episodes
        ],
    )
    write_metrics(db, record.number, record.metrics)


def write_metrics(db: sqlite3.Connection, iteration: int, metrics: Numbers) -> None:
    """Writes metrics of an iteration, replacing existing ones of the same names."""
    db.executemany(
        "INSERT OR REPLACE INTO metrics VALUES (?, ?, ?)",
        [(iteration, name, value) for name, value in sorted(metrics.items())],
    )
