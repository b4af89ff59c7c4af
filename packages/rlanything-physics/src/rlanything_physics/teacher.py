"""The teacher of the nano models for physics: the expert's laws, and failures as critics."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from rlanything.domains.base import Domain
from rlanything.records import Direction, Step, Task, Trajectory
from rlanything_nano.expert_teacher import PLAN, ExpertTeacher
from rlanything_physics.catalogue import FAMILIES
from rlanything_physics.families.base import Failure, numbers_in

TRIES = 8
"""Number of proposals to try before a task is said to have none."""
LARGEST = 3
"""Largest change of a parameter that is proposed, in steps."""


class PhysicsTeacher(ExpertTeacher):
    """Teaches critics that say what happened, and rewrites that follow from a task's own
    failures."""

    def __init__(self, domain: Domain) -> None:
        plan = replace(
            PLAN,
            games=2400,
            slip=0.15,
            judged_games=600,
            label_noise=0.1,
            criticised_games=200,
            adapter_games=200,
            adapter_epochs=2,
            max_steps=20,
            response_tokens=32,
            thought_tokens=16,
            judgement_tokens=48,
            proposal_tokens=24,
            episodes=240,
        )
        super().__init__("physics", domain, plan)

    def critic(self, task: Task, steps: Sequence[Step], rejected: Sequence[int]) -> str:
        """Says what happened. It names no change: which one helps is for the adapter to learn."""
        del rejected
        return failure_of(task, steps).text

    def proposal(self, root: Task, direction: Direction, rng: random.Random) -> str | None:
        """Proposes a change of one parameter, whichever, that the domain accepts."""
        family, p = FAMILIES[str(root.kind)], root.data["parameters"]
        for _ in range(TRIES):
            parameter = rng.choice(family.parameters)
            possible = parameter.changes(p[parameter.name], direction)[:LARGEST]
            if possible and self._accepted(
                root, answer := f"{parameter.name} {rng.choice(possible)}"
            ):
                return answer
        return None

    def revision(
        self, root: Task, direction: Direction, failed: Sequence[Trajectory], rng: random.Random
    ) -> str | None:
        """Proposes a change of one or two parameters that the failures have to do with."""
        family, p = FAMILIES[str(root.kind)], root.data["parameters"]
        blamed = [name for one in failed for name in failure_of(one.task, one.steps).parameters]
        for _ in range(TRIES):
            names = {rng.choice(blamed) for _ in range(rng.randint(1, 2))}
            changes: dict[str, int] = {}
            for parameter in family.parameters:
                possible = parameter.changes(p[parameter.name], direction)[:LARGEST]
                if parameter.name in names and possible:
                    changes[parameter.name] = rng.choice(possible)
            answer = ", ".join(f"{name} {value}" for name, value in changes.items())
            if answer and self._accepted(root, answer):
                return answer
        return None


def failure_of(task: Task, steps: Sequence[Step]) -> Failure:
    """Returns the description of a lost episode."""
    shown = [numbers_in(step.observation) for step in steps]
    shown.append(numbers_in(steps[-1].next_observation))
    return FAMILIES[str(task.kind)].failure(task.data["parameters"], shown)
