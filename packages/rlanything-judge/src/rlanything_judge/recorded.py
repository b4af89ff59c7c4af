"""Stored rollouts of an iteration as records for a judge."""

from __future__ import annotations

import json

from rlanything.domains.thoughts import KNOWN
from rlanything.records import Completion, Step, Task, Trajectory
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store
from rlanything.runs.store.stored import StoredStep

_NAMES = (
    "SELECT id FROM trajectories JOIN transcripts ON trajectory = number"
    " WHERE iteration = ? ORDER BY number"
)


def recorded_trajectories(store: Store, iteration: int) -> list[Trajectory]:
    """Returns the episodes of an iteration whose texts are kept, without their tokens.

    Raises `StoreError` if the policy reasoned before answering: the start of a recorded answer is
    not stored, and a judge must not read the reasoning. Also if several roles acted: the outcomes
    of the others are not stored."""
    with store.understanding():
        return _trajectories(store, iteration)


def _trajectories(store: Store, iteration: int) -> list[Trajectory]:
    tasks = {
        name: Task(name, instruction, kind, json.loads(data))
        for name, instruction, kind, data in store.query(
            "SELECT id, instruction, kind, data FROM tasks"
        )
    }
    trajectories: list[Trajectory] = []
    for (name,) in store.query(_NAMES, iteration):
        kept = store.trajectory(name)
        if len({step.by for step in kept.steps}) > 1:
            raise StoreError(
                f"{name}: several roles act, and a store keeps the outcome of the first; judge the "
                "held-out episodes instead (no --iteration)"
            )
        steps = tuple(_step(name, step) for step in kept.steps)
        task = tasks[kept.task]
        trajectories.append(Trajectory(name, task, steps, kept.outcome, kept.reward))
    return trajectories


def recorded_labels(store: Store, iteration: int) -> dict[str, list[int]]:
    """Returns the oracle's labels of those episodes' steps; 0 for a step without a label."""
    labels: dict[str, list[int]] = {}
    for name, label in store.query(
        "SELECT id, label FROM steps JOIN trajectories ON number = trajectory"
        " WHERE iteration = ? ORDER BY number, step",
        iteration,
    ):
        labels.setdefault(name, []).append(label or 0)
    return {name: steps for name, steps in labels.items() if any(steps)}


def _step(name: str, step: StoredStep) -> Step:
    text = step.completion.text
    if any(mark in text for marks in KNOWN for mark in (marks.begins, marks.ends)):
        raise StoreError(
            f"{name}: the policy reasoned before its answer, and a store does not keep where one "
            "begins; judge the held-out episodes instead (no --iteration)"
        )
    completion = Completion.unsampled(text)
    return Step(
        step.observation,
        completion,
        step.action,
        step.valid,
        step.next_observation,
        step.image,
        step.next_image,
    )
