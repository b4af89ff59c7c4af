"""Tasks that an adapter rewrote: another goal of the same set-up, with or without a hint.

An answer is two lines: `goal: NAME` and `hint: yes` or `hint: no`; for users' own tasks, `hint:`
and a strength. Omitted lines keep the current value. The set-up never changes.
"""

from __future__ import annotations

import re

from rlanything.domains.base import InvalidTask
from rlanything.records import Task
from rlanything_osworld.families import FAMILIES
from rlanything_osworld.goals import with_goal
from rlanything_osworld.tasks import draft, generated_task, goals_of

_LINE = re.compile(r"[ \t]*(goal|hint):[ \t]*(\S+?)[.]?[ \t]*", re.ASCII | re.IGNORECASE)
_HINTS = {"yes": True, "no": False, "none": False}


def rewritten(root: Task, task_id: str, answer: str) -> Task:
    """Returns the task that an answer describes. Raises `InvalidTask` with the reason."""
    made = root.data.get("generated")
    if made is None and "goals" not in root.data:
        raise InvalidTask("the task has one evaluator: there is nothing to choose")
    fields = _fields(answer)
    if made is None:
        return with_goal(root, task_id, fields)
    family = FAMILIES[made["family"]]
    goals = goals_of(draft(family, made["seed"]))
    goal = fields.get("goal", str(made["goal"]))
    if goal not in goals:
        raise InvalidTask(f"goal {goal[:40]} is none of {', '.join(goals)}")
    hint = fields.get("hint", "yes" if made["hinted"] else "no").lower()
    if hint not in _HINTS:
        raise InvalidTask(f"hint is {hint[:40]}: yes or no are possible")
    hinted = _HINTS[hint]
    if (goal, hinted) == (made["goal"], made["hinted"]):
        raise InvalidTask("nothing is changed")
    return generated_task(task_id, family, made["seed"], goal, hinted)


def _fields(answer: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in answer.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        name = match[1].lower()
        if name in fields:
            raise InvalidTask(f"{name} is said twice", "unreadable")
        fields[name] = match[2]
    if not fields:
        raise InvalidTask("no `goal: ...` and no `hint: ...` in the answer", "unreadable")
    return fields
