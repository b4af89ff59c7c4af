"""The slots of a run from its store: root, active task, candidates, accuracies, critics."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from rlanything.records import Task
from rlanything.runs.store.store import Store

SHORT = 40
"""Longest value of a task's data, in characters, that a table shows."""


def read_lineage(store: Store) -> list[dict[str, Any]]:
    """Returns one record per slot, in the order of their ids; empty before the first iteration.

    `quarantined`: why the slot's active task is no longer rolled out, or None; in the history, why
    the candidate is not. Raises `StoreError`."""
    with store.understanding():
        return _slots(store)


def accepted_tasks(store: Store) -> list[Task]:
    """Returns the rewritten tasks that a run accepted, oldest first, without those that no longer
    could be played. Raises `StoreError`."""
    with store.understanding():
        rows = store.query(
            "SELECT id, instruction, tasks.kind, data FROM tasks"
            " JOIN slot_events ON task = id AND slot_events.kind = 'accepted'"
            " WHERE id NOT IN (SELECT task FROM quarantine) ORDER BY iteration, id"
        )
        return [Task(id, said, kind, json.loads(data)) for id, said, kind, data in rows]


def _slots(store: Store) -> list[dict[str, Any]]:
    instructions = dict(store.query("SELECT id, instruction FROM tasks"))
    data = {task: json.loads(text) for task, text in store.query("SELECT id, data FROM tasks")}
    quarantined = dict(store.query("SELECT task, reason FROM quarantine"))
    critics = {
        (slot, task): json.loads(texts)
        for slot, task, texts in store.query(
            "SELECT slot, task, critics FROM proposals WHERE task IS NOT NULL"
        )
    }
    histories: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for slot, kind, iteration, task, direction, parent, candidate, reason in store.query(
        "SELECT slot, kind, iteration, task, direction, parent_accuracy, candidate_accuracy, reason"
        " FROM slot_events ORDER BY slot, number"
    ):
        histories[slot].append(
            {
                "event": kind,
                "iteration": iteration,
                "task": task,
                "instruction": instructions.get(task),
                "data": data.get(task),
                "direction": direction,
                "parent_accuracy": parent,
                "candidate_accuracy": candidate,
                "reason": reason,
                "critics": critics.get((slot, task), []),
                "quarantined": quarantined.get(task),
            }
        )
    return [
        {
            "slot": slot,
            "root": instructions.get(slot),
            "active": active,
            "instruction": instructions.get(active),
            "root_data": data.get(slot),
            "data": data.get(active),
            "accuracy": accuracy,
            "pending": pending,
            "quarantined": quarantined.get(active),
            "history": histories[slot],
        }
        for slot, active, pending, accuracy in store.query(
            "SELECT slot, active, pending, accuracy FROM slots ORDER BY slot"
        )
    ]


def lineage_table(slots: list[dict[str, Any]]) -> Table:
    """Builds a table of the slots, those with a history first, with accepted and rejected
    candidates and reasons. Tasks often have the same text, so each row has the slot's id and the
    data in which tasks differ."""
    table = Table(title=f"{len(slots)} slots", show_lines=True)
    table.add_column("slot and root task")
    table.add_column("active task")
    table.add_column("accuracy", justify="right")
    table.add_column("history")
    differing = _differing([slot["root_data"] for slot in slots])
    for slot in sorted(slots, key=lambda slot: -len(slot["history"])):
        accuracy = "-" if slot["accuracy"] is None else f"{slot['accuracy']:.2f}"
        same = slot["active"] == slot["slot"]
        active = "as root" if same else str(slot["instruction"])
        if not same and (changed := _differing([slot["root_data"], slot["data"]])):
            active += f"\n{_said(slot['data'], changed)}"
        if slot["quarantined"] is not None:
            active += f"\nquarantined: {slot['quarantined']}"
        history = [
            line
            for event in slot["history"]
            for line in _event_lines(event, _differing([slot["root_data"], event["data"]]))
        ]
        root = "\n".join(
            filter(None, [slot["slot"], slot["root"], _said(slot["root_data"], differing)])
        )
        table.add_row(root, active, accuracy, "\n".join(history) or "-")
    return table


def _differing(several: Sequence[Any]) -> list[str]:
    """Returns the keys of tasks' data whose values are short and differ between tasks."""
    mappings = [data for data in several if isinstance(data, dict)]
    keys = dict.fromkeys(key for data in mappings for key in data)
    return [
        key
        for key in keys
        if len({json.dumps(data.get(key)) for data in mappings}) > 1
        and all(len(json.dumps(data.get(key))) <= SHORT for data in mappings)
    ]


def _said(data: Any, keys: Sequence[str]) -> str:
    """Returns some of a task's data in a line: `secret 5, tries 4`."""
    return ", ".join(f"{key} {data.get(key)}" for key in keys) if isinstance(data, dict) else ""


def _event_lines(event: dict[str, Any], changed: Sequence[str]) -> list[str]:
    when = event["iteration"]
    if event["event"] == "proposed":
        asked = f"{event['direction']} than {event['parent_accuracy']:.2f}"
        critics = [f"critic: {text}" for text in event["critics"]]
        told = _said(event["data"], changed)
        return [*critics, f"{when}: {asked}? {event['instruction']}{f' ({told})' if told else ''}"]
    accuracy = event["candidate_accuracy"]
    at = "" if accuracy is None else f" at {accuracy:.2f}"
    return [f"{when}: {event['event']}{at}, {event['reason']}"]
