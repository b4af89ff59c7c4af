"""The AlfWorld domain: household games on the TextWorld engine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version

from rlanything.domains.alfworld.assets import package_folder
from rlanything.domains.alfworld.dataset import dataset_tasks
from rlanything.domains.alfworld.environment import ACTION_MARKER, AlfWorldEnvironment
from rlanything.domains.alfworld.expert import plan
from rlanything.domains.alfworld.goal import KINDS, Goal
from rlanything.domains.alfworld.player_memory import PlayerMemory, condense
from rlanything.domains.alfworld.scene_goals import scene_inventory
from rlanything.domains.alfworld.step_labels import step_labels
from rlanything.domains.alfworld.tasks import load_game, tasks, with_goal
from rlanything.domains.alfworld.world import World
from rlanything.domains.base import DomainError, Finding, InvalidTask
from rlanything.domains.teaching import StepTeacher
from rlanything.domains.templates import Templates
from rlanything.records import (
    Direction,
    JudgedTrajectory,
    Message,
    Messages,
    Step,
    Task,
    Trajectory,
)

_FIELD = re.compile(
    r"""\b(object|place):(?:[ \t\r\n]*(\w+)(?=[ \t\r\n.,;!?)\]"'`*<]|\Z))?""",
    re.ASCII | re.IGNORECASE,
)

PLACEHOLDERS: dict[str, frozenset[str]] = {
    "policy": frozenset({"task", "observation", "memory"}),
    "turn": frozenset({"observation", "memory"}),
    "judge": frozenset({"task", "observation", "memory"}),
    "judge_step": frozenset({"response", "observation", "memory"}),
    "judge_question": frozenset(),
    "critic": frozenset({"task", "steps", "memory"}),
    "critic_step": frozenset({"mark", "response"}),
    "adapter": frozenset({"direction", "goal", "objects", "places", "critics"}),
}


class AlfWorld:
    """Household games in text, generated unless `data` names a folder of downloaded ones.

    `receptacles`, `objects`: fewest and most of each in a generated scene. `kinds`: the task types.
    `prompts`: a folder whose .txt files replace the shipped prompts. `data`: AlfWorld's own games
    (the `json_2.1.1` folder that `alfworld-download` makes); scene sizes are then theirs. Raises
    `DomainError` for options it cannot use."""

    action_marker = ACTION_MARKER

    def __init__(
        self,
        receptacles: Sequence[int] = (4, 7),
        objects: Sequence[int] = (5, 9),
        kinds: Sequence[str] = KINDS,
        prompts: str | None = None,
        data: str | None = None,
    ) -> None:
        self._receptacles = _range("receptacles", receptacles)
        self._objects = _range("objects", objects)
        self._kinds = tuple(kinds)
        self._data = data
        self._templates = Templates("rlanything.domains.alfworld", PLACEHOLDERS, prompts)

    @staticmethod
    def checks() -> list[Finding]:
        try:
            package_folder()
        except DomainError as error:
            return [Finding("alfworld", True, f"not available: {error}")]
        return [Finding("alfworld", True, f"the text game: alfworld {version('alfworld')}")]

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        if self._data is not None:
            return dataset_tasks(self._data, split, count, seed, self._kinds)
        return tasks(split, count, seed, self._receptacles, self._objects, self._kinds)

    def stand_ins(self, count: int) -> list[Task]:
        """Returns games in whole rooms, as downloaded games have them."""
        return tasks("train", count, 0, None, None, self._kinds)

    def environment(self) -> AlfWorldEnvironment:
        return AlfWorldEnvironment(idle_actions=False)

    @staticmethod
    def nano_teacher() -> StepTeacher:
        from rlanything.domains.alfworld.teacher import AlfWorldTeacher

        return AlfWorldTeacher()

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        """Returns a chat that only grows: each turn is one observation and what to remember."""
        first = steps[0].observation if steps else observation
        memory = PlayerMemory.at_start(task.instruction, first)
        opening = self._templates.render(
            "policy", task=task.instruction, observation=condense(first), memory=memory.line()
        )
        messages = [Message("user", opening)]
        for step in steps:
            memory.read(step.next_observation)
            turn = self._templates.render(
                "turn", observation=condense(step.next_observation), memory=memory.line()
            )
            messages += [Message("assistant", step.response), Message("user", turn)]
        return tuple(messages)

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        """Returns one message: the episode so far, with its last step to be judged."""
        memory = PlayerMemory.at_start(task.instruction, steps[0].observation)
        parts = [
            self._templates.render(
                "judge",
                task=task.instruction,
                observation=condense(steps[0].observation),
                memory=memory.line(),
            )
        ]
        for step in steps:
            memory.read(step.next_observation)
            parts.append(
                self._templates.render(
                    "judge_step",
                    response=step.response,
                    observation=condense(step.next_observation),
                    memory=memory.line(),
                )
            )
        parts.append(self._templates.render("judge_question"))
        return (Message("user", "".join(parts)),)

    def critic_prompt(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        trajectory = failed.trajectory
        memory = PlayerMemory.at_start(trajectory.task.instruction, trajectory.steps[0].observation)
        for step in trajectory.steps:
            memory.read(step.next_observation)
        text = self._templates.render(
            "critic",
            task=trajectory.task.instruction,
            steps=self._templates.critic_steps(trajectory.steps, rejected),
            memory=memory.line(),
        )
        return (Message("user", text),)

    def adapter_prompt(
        self,
        root: Task,
        direction: Direction,
        critics: Sequence[str],
        rollouts: Sequence[JudgedTrajectory] = (),
    ) -> Messages:
        game = load_game(root.data)
        inventory = scene_inventory(game)
        text = self._templates.render(
            "adapter",
            direction=direction,
            goal=root.instruction,
            objects=", ".join(
                f"{kind} {len(places)} ({places[0]})" for kind, places in inventory.objects.items()
            ),
            places=", ".join(f"{kind} {count}" for kind, count in inventory.receptacles.items()),
            critics=" ".join(critics) or "none",
        )
        return (Message("user", text),)

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        """Reads `object: X place: Y`, said once or always alike. The task type stays the root's."""
        matches = _FIELD.finditer(completion)
        fields = [(match[1].lower(), (match[2] or "").lower()) for match in matches]
        labels, words = [label for label, _ in fields], [word for _, word in fields]
        if not fields or labels != ["object", "place"] * (len(fields) // 2) or "" in words:
            raise InvalidTask("no `object: ... place: ...` in the answer", "unreadable")
        if len(set(fields)) > 2:
            raise InvalidTask("the answer names more than one object or place", "unreadable")
        kind = load_game(root.data).goal.kind
        return with_goal(root, task_id, Goal.of(kind, words[0], words[1]))

    def objection(self, task: Task, trajectories: Sequence[Trajectory]) -> str | None:
        del task, trajectories  # a candidate's plan was played when it was proposed
        return None

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int]:
        """Returns +1 for a step that shortens the expert's plan, or explores while something is
        unseen."""
        actions, valid = [step.action for step in steps], [step.valid for step in steps]
        return step_labels(load_game(task.data), actions, valid)

    def expert(self, task: Task, steps: Sequence[Step]) -> str:
        """Returns the first command of a shortest plan from where the steps led."""
        game = load_game(task.data)
        played = [step.action for step in steps if step.valid and step.action is not None]
        return f"{ACTION_MARKER} {plan(World(game.scene_pddl).after(played), game.goal)[0]}"


def _range(name: str, given: Sequence[int]) -> tuple[int, int]:
    low, high = [*given, 0, 0][:2]
    if len(given) != 2 or not 1 <= low <= high:
        raise DomainError(f"{name} is {list(given)}: give [fewest, most]")
    return low, high
