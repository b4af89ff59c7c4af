"""A run's slots as they stand in its store: root, active task, candidates, accuracies, critics."""

from __future__ import annotations

import json
from typing import Any

from rich.table import Table

from rlanything.runs.store import Store


def read_lineage(store: Store) -> list[dict[str, Any]]:
    """One record per slot, in the order of their ids; empty before the first iteration."""
    instructions = dict(store.query("SELECT id, instruction FROM tasks"))
    critics = {
        (slot, task): json.loads(texts)
        for slot, task, texts in store.query(
            "SELECT slot, task, critics FROM proposals WHERE task IS NOT NULL"
        )
    }
    slots: list[dict[str, Any]] = []
    for slot, active, pending, accuracy in store.query(
        "SELECT slot, active, pending, accuracy FROM slots ORDER BY slot"
    ):
        history = [
            {
                "event": kind,
                "iteration": iteration,
                "task": task,
                "instruction": instructions.get(task),
                "direction": direction,
                "parent_accuracy": parent,
                "candidate_accuracy": candidate,
                "reason": reason,
                "critics": critics.get((slot, task), []),
            }
            for kind, iteration, task, direction, parent, candidate, reason in store.query(
                "SELECT kind, iteration, task, direction, parent_accuracy, candidate_accuracy,"
                " reason FROM slot_events WHERE slot = ? ORDER BY number",
                slot,
            )
        ]
        slots.append(
            {
                "slot": slot,
                "root": instructions.get(slot),
                "active": active,
                "instruction": instructions.get(active),
                "accuracy": accuracy,
                "pending": pending,
                "history": history,
            }
        )
    return slots


def lineage_table(slots: list[dict[str, Any]]) -> Table:
    """Slots with a history first; what was accepted, rejected and why."""
    table = Table(title=f"{len(slots)} slots", show_lines=True)
    table.add_column("root task")
    table.add_column("active task")
    table.add_column("accuracy", justify="right")
    table.add_column("history")
    for slot in sorted(slots, key=lambda each: -len(each["history"])):
        lines: list[str] = []
        for event in slot["history"]:
            if event["event"] == "proposed":
                lines += [f"critic: {text}" for text in event["critics"]]
                asked = f"{event['direction']} than {event['parent_accuracy']:.2f}"
                lines.append(f"{event['iteration']}: {asked}? {event['instruction']}")
            else:
                lines.append(
                    f"{event['iteration']}: {event['event']} at {event['candidate_accuracy']:.2f}, "
                    f"{event['reason']}"
                )
        accuracy = "-" if slot["accuracy"] is None else f"{slot['accuracy']:.2f}"
        same = slot["active"] == slot["slot"]
        active = "as root" if same else str(slot["instruction"])
        table.add_row(str(slot["root"]), active, accuracy, "\n".join(lines) or "-")
    return table
