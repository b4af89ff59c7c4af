"""The physics domain: tasks are the parameters of small worlds, states are numbers."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import Field

from rlanything.domains.base import (
    DomainError,
    DomainOptions,
    InvalidTask,
    Observation,
    RewriteRequest,
    StepResult,
)
from rlanything.domains.text import TextDomain, action_after
from rlanything.records import Direction, JudgedTrajectory, Message, Messages, Step, Task
from rlanything_physics.catalogue import FAMILIES
from rlanything_physics.families.base import Setting, WorldFamily, numbers_in
from rlanything_physics.simulation import Simulation

if TYPE_CHECKING:
    from rlanything_nano.teaching import StepTeacher

SPLITS = ("train", "tune", "in_domain", "ood")
HELD_OUT = {"tune": range(80, 90), "in_domain": range(90, 100), "ood": range(80, 100)}
"""The hundredths of all settings that belong to each split but `train`, which has the others; `ood`
has those outside the training range."""
TRIES = 2000
"""Number of drawn settings, for each wanted task, after which a split has no more."""

Values: TypeAlias = tuple[tuple[str, int], ...]
"""A setting as pairs, which can be cached."""


class PhysicsEnvironment:
    """Plays episodes in one world after another."""

    _task: Task
    _world: Simulation
    _taken: int

    def reset(self, task: Task) -> Observation:
        family, p = _of(task)
        self._task, self._taken = task, 0
        self._world = begun(family, p)
        return self._seen("")

    def step(self, response: str) -> StepResult:
        family, p = _of(self._task)
        action = action_after(TextDomain.action_marker, response)
        self._taken += 1
        valid = action in family.actions
        outcome = family.act(self._world, p, str(action), self._taken) if valid else None
        if outcome is None and self._taken >= family.decisions:
            outcome = -1
        return StepResult(self._seen("" if valid else "no such control, "), action, valid, outcome)

    @property
    def state(self) -> bytes:
        """Returns the bytes of all positions and velocities."""
        return self._world.state

    def _seen(self, warning: str) -> Observation:
        family, p = _of(self._task)
        left = family.decisions - self._taken
        text = f"{warning}{family.show(self._world, p)} left {left}"
        return Observation(text, family.actions)


class Physics(TextDomain):
    """Small worlds whose mass, friction, power, ... are the task."""

    class Options(DomainOptions):
        families: Annotated[Sequence[str], Field(min_length=1)] = tuple(FAMILIES)
        """Families of tasks, played in turn: push, balance, throw, slope."""

    def __init__(self, **options: Any) -> None:
        """Raises `DomainError` for an unknown family."""
        super().__init__(**options)
        for name in self.options.families:
            if name not in FAMILIES:
                raise DomainError(
                    f"domain.options.families: no family is called {name!r}: use "
                    f"{', '.join(FAMILIES)}"
                )

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        if split not in SPLITS:
            raise DomainError(f"no split is called {split!r}: use one of {', '.join(SPLITS)}")
        rng = random.Random(f"{split}/{seed}")
        drawn = set[tuple[str, Values]]()
        tasks: list[Task] = []
        for _ in range(TRIES * count):
            if len(tasks) == count:
                break
            family = FAMILIES[self.options.families[len(tasks) % len(self.options.families)]]
            values = _drawn(family, split == "ood", rng)
            key = (family.name, values)
            if key in drawn or split_of(family, dict(values)) != split:
                continue
            drawn.add(key)
            if solvable(family.name, values):
                tasks.append(make_task(f"{split}-{seed}-{len(tasks)}", family, dict(values)))
        return tasks

    def environment(self) -> PhysicsEnvironment:
        return PhysicsEnvironment()

    @staticmethod
    def nano_teacher() -> StepTeacher:
        from rlanything_physics.teacher import PhysicsTeacher

        return PhysicsTeacher(Physics())

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        """Returns the task and the current state; earlier states add nothing to it."""
        del steps
        return (Message("user", _situation(task, observation)),)

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        """Returns what the policy saw, its control, and the state after it."""
        last = steps[-1]
        question = "Reason, then write \\boxed{1} if it was a good control, \\boxed{-1} if not."
        text = (
            f"{_situation(task, last.observation)}\nControl: {last.action or 'none'}\n"
            f"After: {last.next_observation}\n{question}"
        )
        return (Message("user", text),)

    def critic_prompt(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        trajectory = failed.trajectory
        lines = [trajectory.steps[0].observation] if trajectory.steps else []
        for i, step in enumerate(trajectory.steps):
            bad = " (bad)" if i in rejected else ""
            lines.append(f"{step.action or 'none'}{bad}: {step.next_observation}")
        text = "\n".join(lines)
        question = "The episode was lost. Say in one sentence what happened."
        return (Message("user", f"{trajectory.task.instruction}\n{text}\n{question}"),)

    def adapter_prompt(self, request: RewriteRequest) -> Messages:
        family, _ = _of(request.root)
        ranges = ", ".join(f"{each.name} {each.least} to {each.most}" for each in family.parameters)
        text = (
            f"{request.root.instruction}\nPossible: {ranges}.\n"
            f"Lost episodes: {' '.join(request.critics) or 'none'}\n"
            f"Make it {request.direction}: write the parameters that change, with their values."
        )
        return (Message("user", text),)

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        """Returns the task with other parameters, which the expert solves."""
        family, p = _of(root)
        written = numbers_in(completion)
        if not written:
            raise InvalidTask("no `parameter value` in the answer", "unreadable")
        known = {each.name: each for each in family.parameters}
        for name, value in written.items():
            if name not in known:
                raise InvalidTask(f"{family.name} has no parameter {name!r}")
            if not known[name].least <= value <= known[name].most:
                raise InvalidTask(
                    f"{name} is {value}: {known[name].least} to {known[name].most} are possible"
                )
        changed = {**p, **written}
        if changed == dict(p):
            raise InvalidTask("nothing is changed")
        if split_of(family, changed) not in ("train", None):
            raise InvalidTask("these parameters are held out for evaluation")
        if not solvable(family.name, tuple(changed.items())):
            raise InvalidTask("the expert does not solve it", "unsolvable")
        return make_task(task_id, family, changed)

    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        family, p = _of(task)
        text = steps[-1].next_observation if steps else family.show(begun(family, p), p)
        thought, action = family.decide(p, numbers_in(text))
        return f"{thought} {self.action_marker} {action}"

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int] | None:
        """Returns +1 for the expert's control in that state, and for the ones next to it."""
        family, p = _of(task)
        labels: list[int] = []
        for step in steps:
            right = family.actions.index(family.decide(p, numbers_in(step.observation))[1])
            near = step.valid and abs(family.actions.index(str(step.action)) - right) <= 1
            labels.append(1 if near else -1)
        return labels

    def rewrites(self, root: Task, direction: Direction) -> list[str]:
        """Returns changes of one parameter that should move the task's difficulty."""
        family, p = _of(root)
        return [
            f"{parameter.name} {value}"
            for parameter in family.parameters
            for value in parameter.changes(p[parameter.name], direction)[:3]
        ]


def make_task(task_id: str, family: WorldFamily, p: Setting) -> Task:
    """Returns the task with these parameters, which its instruction lists."""
    said = ", ".join(f"{each.name} {p[each.name]}" for each in family.parameters)
    data = {each.name: p[each.name] for each in family.parameters}
    return Task(task_id, f"{family.goal} {said}.", family.name, {"parameters": data})


def begun(family: WorldFamily, p: Setting) -> Simulation:
    """Returns a world at the beginning of an episode."""
    world = Simulation(family.xml(p))
    family.start(world, p)
    return world


def split_of(family: WorldFamily, p: Setting) -> str | None:
    """Returns the split that a setting belongs to; None if it is outside the training range and not
    held out."""
    text = f"{family.name}/{[p[each.name] for each in family.parameters]}"
    place = int(hashlib.sha256(text.encode()).hexdigest(), 16) % 100
    inside = all(each.low <= p[each.name] <= each.high for each in family.parameters)
    for split, places in HELD_OUT.items():
        if place in places and inside == (split != "ood"):
            return split
    return "train" if inside else None


@lru_cache(maxsize=200_000)
def solvable(name: str, values: Values) -> bool:
    """Returns whether the expert wins with these parameters of a family."""
    family, p = FAMILIES[name], dict(values)
    world = begun(family, p)
    for taken in range(1, family.decisions + 1):
        action = family.decide(p, numbers_in(family.show(world, p)))[1]
        outcome = family.act(world, p, action, taken)
        if outcome is not None:
            return outcome == 1
    return False


def _drawn(family: WorldFamily, anywhere: bool, rng: random.Random) -> Values:
    """Returns random parameters of the training range, or of all that are possible."""
    values: list[tuple[str, int]] = []
    for parameter in family.parameters:
        ends = (parameter.least, parameter.most) if anywhere else (parameter.low, parameter.high)
        values.append((parameter.name, rng.randint(*ends)))
    return tuple(values)


def _situation(task: Task, observation: str) -> str:
    """Returns the task and a state, as the policy reads them."""
    actions = ", ".join(_of(task)[0].actions)
    usage = f"Thought, then {TextDomain.action_marker} and one of {actions}."
    return f"{task.instruction}\n{usage}\n{observation}"


def _of(task: Task) -> tuple[WorldFamily, Setting]:
    return FAMILIES[str(task.kind)], task.data["parameters"]
