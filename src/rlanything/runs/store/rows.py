"""What an iteration leaves, as rows. The caller has the transaction."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import astuple

from rlanything.algorithm.curriculum import Pool
from rlanything.records import Completion, JudgedTrajectory, Judgement, Sample
from rlanything.runs.store.codec import pack


def storable(text: str) -> str:
    """Halves of surrogate pairs, which SQLite takes in no text, become question marks. In the
    transcripts they stay what they are."""
    return text.encode("utf-8", "replace").decode()


class Trained:
    """The samples of both roles, until each is found at the step or judgement it is of."""

    def __init__(self, samples: Mapping[str, Sequence[Sample]]) -> None:
        if unknown := samples.keys() - {"policy", "judge"}:
            raise ValueError(
                f"samples of {', '.join(sorted(unknown))}: only policy and judge learn"
            )
        self._left = {(role, s.source): s for role, given in samples.items() for s in given}
        if len(self._left) < sum(map(len, samples.values())):
            raise ValueError("a response or judgement trained twice")

    def advantage(self, role: str, source: str, completion: Completion) -> float | None:
        """None: the role did not train on it."""
        sample = self._left.pop((role, source), None)
        if sample is None:
            return None
        if sample.completion != completion:
            raise ValueError(f"sample {source} trained on other tokens than were sampled")
        return sample.advantage

    def check_all_taken(self) -> None:
        if self._left:
            role, source = next(iter(self._left))
            raise ValueError(f"{role} sample {source} is of no trajectory of this iteration")


def write_pool(db: sqlite3.Connection, pool: Pool, iteration: int) -> None:
    """Slots, their history and tasks; and what is quarantined, by this iteration if it is new."""
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
        [(task, iteration, why) for s in pool.slots for task, why in s.quarantined.items()],
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
                event.reason,
            )
            for slot in pool.slots
            for number, event in enumerate(slot.history)
        ],
    )


def write_trajectory(
    db: sqlite3.Connection,
    iteration: int,
    judged: JudgedTrajectory,
    labels: Mapping[str, Sequence[int]],
    trained: Trained,
    written: set[int],
) -> None:
    """`written`: the judgements of its group that have been written, by the identity of what was
    said: a judgement that several trajectories share is written with the first of them."""
    trajectory = judged.trajectory
    name, known = trajectory.id, labels.get(trajectory.id)
    number = db.execute(
        "INSERT INTO trajectories (id, iteration, task, outcome, steps, reward)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            name,
            iteration,
            trajectory.task.id,
            trajectory.outcome,
            len(trajectory.steps),
            trajectory.reward,
        ),
    ).lastrowid
    db.executemany(
        "INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                number,
                i,
                storable(step.action) if step.action is not None else None,
                step.valid,
                known[i] if known is not None else None,
                trained.advantage("policy", f"{name}/{i}", step.completion),
                step.image,
            )
            for i, step in enumerate(trajectory.steps)
        ],
    )
    db.executemany(
        "INSERT INTO judgements VALUES (?, ?, ?, ?, ?)",
        [
            (
                number,
                i,
                j,
                each.score,
                trained.advantage("judge", f"{name}/{i}/{j}", each.completion),
            )
            for i, judgements in enumerate(judged.judgements)
            for j, each in enumerate(judgements)
        ],
    )
    packed = pack(_without(judged, written))
    db.execute("INSERT INTO transcripts VALUES (?, ?, ?, ?, ?)", (number, *astuple(packed)))
    written.update(id(each.completion) for step in judged.judgements for each in step)


def _without(judged: JudgedTrajectory, written: AbstractSet[int]) -> JudgedTrajectory:
    """The trajectory with empty texts for the judgements that are written already."""

    def once(each: Judgement) -> Judgement:
        again = id(each.completion) in written
        return Judgement(Completion.unsampled(""), each.score) if again else each

    return JudgedTrajectory(
        judged.trajectory, tuple(tuple(once(each) for each in step) for step in judged.judgements)
    )


def write_evaluation(
    db: sqlite3.Connection,
    iteration: int,
    split: str,
    judged: Sequence[tuple[str, str, int, int]],
) -> None:
    """The rows of one task are its attempts, in order."""
    before = Counter[str]()
    rows: list[tuple[str, int, str, int, int]] = []
    for task, kind, outcome, steps in judged:
        rows.append((task, before[task], kind, outcome, steps))
        before[task] += 1
    db.executemany(
        "INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(iteration, split, *row) for row in rows],
    )


def write_metrics(
    db: sqlite3.Connection, iteration: int, metrics: Mapping[str, float | None]
) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO metrics VALUES (?, ?, ?)",
        [(iteration, name, value) for name, value in sorted(metrics.items())],
    )
