"""Goals and hints prepared for a task, in additional keys of OSWorld's format.

The format for users:

    "evaluator_list": [{"goal": "bold"}, {"goal": "italic", "instruction": ..., "evaluator": ...}]
    "task_template": {"weak": INSTRUCTION, "strong": INSTRUCTION}

The list names the goals, the easiest first. The goal without an evaluator is the task's own; its
name is `given` if the list has no such entry. A template has a variant of the instruction for each
strength of a hint, the weakest first. Each entry of the list may have its own template.

The format of the paper's published tasks:

    "evaluator_list": {"evaluator1": EVALUATOR, "evaluator2": EVALUATOR}
    "task_template": {"evaluator1": INSTRUCTION, "evaluator2": INSTRUCTION}
    "hint": TEXT

The names are the goals, in no order; the task's own goal is the one with the task's `evaluator`.
Its instruction is the task's: the template repeats it in other words, and `current_task` sometimes
names another task's, so both are ignored. `hint` gives one hint, `yes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlanything.domains.base import InvalidTask
from rlanything.records import Task

KEYS = ("evaluator_list", "task_template", "current_task", "hint")
OWN, NO_HINT, ONE_HINT = "given", "no", "yes"
ORDERED = ", the easiest first"
"""Describes the goals in an adapter's prompt."""
_NAME = re.compile(r"[\w-]{1,40}", re.ASCII)


def prepared(example: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the additional data of a task: its goals by name, and the requested one; empty for a
    task without a choice. Raises `ValueError` with the reason."""
    entries = example.get("evaluator_list", [])
    if entries and isinstance(entries, dict):
        return _published(example, entries)
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ValueError("evaluator_list is not a list of objects")
    owns = [each for each in entries if "evaluator" not in each]
    if len(owns) > 1:
        raise ValueError("evaluator_list has two entries without an evaluator")
    if not owns:
        owns = [{"goal": OWN}]
        entries = [*owns, *entries]
    goals = {}
    for entry in entries:
        source = {**example, "goal": entry.get("goal")} if entry is owns[0] else entry
        name, goal = _goal(source)
        if name in goals:
            raise ValueError(f"evaluator_list has the goal {name} twice")
        goals[name] = goal
    return _choice(goals, str(owns[0].get("goal")))


def _published(example: Mapping[str, Any], evaluators: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the same as `prepared`, for a task in the paper's format."""
    templates, hint = example.get("task_template", {}), example.get("hint")
    if not isinstance(templates, dict):
        raise ValueError("task_template is not an object of instructions")
    if hint is not None and not isinstance(hint, str):
        raise ValueError("hint is not a text")
    same = [name for name, evaluator in evaluators.items() if evaluator == example["evaluator"]]
    own = same[0] if same else OWN
    given = {own: (example["instruction"], example["evaluator"])}
    others = {name: (templates.get(name), evaluators[name]) for name in evaluators if name != own}
    goals = {}
    for name, (instruction, evaluator) in (given | others).items():
        hints = {ONE_HINT: f"{instruction} Hint: {hint}"} if hint else {}
        name, goals[name] = _goal(
            {
                "goal": name,
                "instruction": instruction,
                "evaluator": evaluator,
                "task_template": hints,
            }
        )
    choice = _choice(goals, own)
    return {**choice, "ordered": False} if choice else {}


def _choice(goals: Mapping[str, Any], own: str) -> dict[str, Any]:
    if len(goals) == 1 and not any(goal["hints"] for goal in goals.values()):
        return {}
    return {"goals": goals, "chosen": {"goal": own, "hint": NO_HINT}}


def with_goal(root: Task, task_id: str, fields: Mapping[str, str]) -> Task:
    """Returns the root task with another goal or hint on its set-up. `fields`: from the adapter's
    answer. Raises `InvalidTask`."""
    goals, chosen = root.data["goals"], root.data["chosen"]
    name = fields.get("goal", chosen["goal"])
    if name not in goals:
        raise InvalidTask(f"goal {name[:40]} is none of {', '.join(goals)}")
    goal = goals[name]
    hints = {NO_HINT: goal["instruction"], **goal["hints"]}
    # Drop a hint that the new goal lacks, unless the answer requests it.
    hint = fields.get("hint", chosen["hint"] if chosen["hint"] in hints else NO_HINT)
    if hint not in hints:
        raise InvalidTask(f"hint {hint[:40]} is none of {', '.join(hints)}")
    if {"goal": name, "hint": hint} == chosen:
        raise InvalidTask("nothing is changed")
    changed = {"instruction": hints[hint], "evaluator": goal["evaluator"]}
    data = {
        **root.data,
        "example": {**root.data["example"], **changed},
        "chosen": {"goal": name, "hint": hint},
    }
    return Task(task_id, hints[hint], root.kind, data)


def offered(root: Task) -> dict[str, str]:
    """Returns the text of an adapter's prompt about the goals and hints of a root task."""
    goals, chosen = root.data["goals"], root.data["chosen"]
    strengths = dict.fromkeys(name for goal in goals.values() for name in goal["hints"])
    return {
        "order": ORDERED if root.data.get("ordered", True) else "",
        "goal": chosen["goal"],
        "goals": ", ".join(f"{name} ({goal['instruction']})" for name, goal in goals.items()),
        "hint": chosen["hint"],
        "hints": " or ".join((NO_HINT, *strengths)),
    }


def _goal(entry: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    name, hints = entry.get("goal"), entry.get("task_template", {})
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a goal name: use letters, digits, - and _")
    for key, kind in {"instruction": str, "evaluator": dict}.items():
        if not isinstance(entry.get(key), kind):
            raise ValueError(f"{key} of the goal {name} is missing or of another kind")
    if not isinstance(hints, dict) or NO_HINT in hints:
        raise ValueError(f"task_template of the goal {name} has no strengths but {NO_HINT}")
    for strength, text in hints.items():
        if not _NAME.fullmatch(strength) or not isinstance(text, str):
            raise ValueError(f"task_template of the goal {name}: {strength!r} has no instruction")
    made = {"instruction": entry["instruction"], "evaluator": entry["evaluator"], "hints": hints}
    return name, made
