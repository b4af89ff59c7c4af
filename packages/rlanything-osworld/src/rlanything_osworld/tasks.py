"""Generated tasks: a family with a seed, one of its goals in one wording, and perhaps a hint."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

from rlanything.domains.base import DomainError
from rlanything.records import Task
from rlanything.seeds import dealt, derive
from rlanything_osworld.families import (
    FAMILIES,
    HELD_OUT,
    DesktopDraft,
    DesktopFamily,
    DesktopGoal,
)

_TRAIN = tuple(each for each in FAMILIES.values() if each.application not in HELD_OUT)
APPLICATIONS = tuple(dict.fromkeys(family.application for family in FAMILIES.values()))
SPLITS: Mapping[str, tuple[DesktopFamily, ...]] = {
    "train": _TRAIN,
    "tune": _TRAIN,
    "in_domain": _TRAIN,
    "ood": tuple(each for each in FAMILIES.values() if each.application in HELD_OUT),
}
"""`in_domain`: the families of `train` with their own seeds; `ood`: held-out applications."""


def generated_tasks(
    split: str,
    count: int,
    seed: int,
    applications: Collection[str] = APPLICATIONS,
    names: Collection[str] = tuple(FAMILIES),
) -> list[Task]:
    """Returns `count` tasks, with every family of the split equally often.

    `applications`, `names`: allowed applications and families. Raises `DomainError` for an unknown
    split, and for one without any of these."""
    if split not in SPLITS:
        raise DomainError(f"unknown split {split!r}: use one of {', '.join(SPLITS)}")
    there = [each for each in SPLITS[split] if each.application in applications]
    if not there:
        possible = dict.fromkeys(each.application for each in SPLITS[split])
        raise DomainError(
            f"split {split} has no task of the applications: add {' or '.join(possible)}"
        )
    families = [each for each in there if each.name in names]
    if not families:
        possible = [each.name for each in there]
        raise DomainError(f"split {split} has no task of the families: add {' or '.join(possible)}")
    rng = random.Random(derive(seed, "osworld", split))
    tasks = []
    for number, family in enumerate(dealt(families, count, rng)):
        of_files = derive(seed, "osworld", split, number) % 2**32
        goal = rng.choice(draft(family, of_files).goals).name
        task_id = f"{split}-{family.name}-{number}-{of_files}"
        tasks.append(generated_task(task_id, family, of_files, goal))
    return tasks


def generated_task(
    task_id: str, family: DesktopFamily, seed: int, goal_name: str, hinted: bool = False
) -> Task:
    """Returns the task of a family's goal, on the files that a seed draws."""
    drawn = draft(family, seed)
    goal = goals_of(drawn)[goal_name]
    instruction = random.Random(derive(seed, "wording", goal_name)).choice(goal.wordings)
    if hinted:
        instruction = f"{instruction} Hint: {goal.hint}"
    example = {
        "id": f"{family.name}-{seed}",
        "snapshot": family.application,
        "instruction": instruction,
        "config": list(drawn.config),
        "related_apps": [family.application],
        "evaluator": goal.evaluator,
    }
    data = {
        "example": example,
        "files": {**drawn.files, **goal.gold},
        "generated": {"family": family.name, "seed": seed, "goal": goal_name, "hinted": hinted},
    }
    return Task(task_id, instruction, family.name, data)


def draft(family: DesktopFamily, seed: int) -> DesktopDraft:
    """Returns the set-up and the goals that a seed draws."""
    return family.draft(random.Random(derive(seed, "osworld", family.name)))


def goals_of(drawn: DesktopDraft) -> dict[str, DesktopGoal]:
    """Returns the goals of a draft by name."""
    return {goal.name: goal for goal in drawn.goals}


def goal_of(task: Task) -> DesktopGoal | None:
    """Returns the goal of a generated task; None for any other task."""
    made = task.data.get("generated")
    if made is None:
        return None
    return goals_of(draft(FAMILIES[made["family"]], made["seed"]))[made["goal"]]
