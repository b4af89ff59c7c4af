"""The AlfWorld domain: household games on the TextWorld engine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Literal

from rlanything.domains.base import DomainError, Finding, InvalidTask
from rlanything.records import (
    Direction,
    JudgedTrajectory,
    Messages,
    Step,
    Task,
    Trajectory,
)
from rlanything_alfworld.assets import package_folder
from rlanything_alfworld.commands import ACTION_MARKER, LISTINGS, Listing
from rlanything_alfworld.dataset import dataset_tasks
from rlanything_alfworld.environment import AlfWorldEnvironment
from rlanything_alfworld.expert import plan
from rlanything_alfworld.goal import KINDS, Goal
from rlanything_alfworld.nano_prompts import NanoPrompts
from rlanything_alfworld.paper_prompts import PaperPrompts
from rlanything_alfworld.step_labels import step_labels
from rlanything_alfworld.tasks import load_game, tasks, with_goal
from rlanything_nano.teaching import StepTeacher

_FIELD = re.compile(
    r"""\b(object|place):(?:[ \t\r\n]*(\w+)(?=[ \t\r\n.,;!?)\]"'`*<]|\Z))?""",
    re.ASCII | re.IGNORECASE,
)


class AlfWorld:
    """Household games in text, generated unless `data` names a folder of downloaded ones.

    `receptacles`, `objects`: smallest and largest number in a generated scene. `kinds`: the task
    types. `data`: AlfWorld's own games (the `json_2.1.1` folder that `alfworld-download` makes),
    with their scene sizes. `style`: prompts for `nano` models (short) or as in the `paper` (full
    length, for large models). `commands`: list the possible commands in prompts, `numbered`, as a
    `list`, or not (`none`); if listed, a response may name one in a box. The default is `numbered`
    in the style `paper` and `none` in `nano`, which cannot list them. `idle_actions`: whether look,
    inventory and examine are possible. `prompts`: a folder whose .txt files replace those of the
    style. Raises `DomainError` for invalid options."""

    action_marker = ACTION_MARKER

    def __init__(
        self,
        receptacles: Sequence[int] = (4, 7),
        objects: Sequence[int] = (5, 9),
        kinds: Sequence[str] = KINDS,
        prompts: str | None = None,
        data: str | None = None,
        style: Literal["nano", "paper"] = "nano",
        commands: Listing | None = None,
        idle_actions: bool = False,
    ) -> None:
        self._receptacles = _range("receptacles", receptacles)
        self._objects = _range("objects", objects)
        self._kinds = tuple(kinds)
        self._data = data
        self._listing: Listing = _listing(style, commands)
        if not isinstance(idle_actions, bool):
            raise DomainError(f"idle_actions is {idle_actions!r}: give true or false")
        self._idle_actions = idle_actions
        self._prompts = (
            PaperPrompts(prompts, self._listing) if style == "paper" else NanoPrompts(prompts)
        )

    @staticmethod
    def checks() -> list[Finding]:
        try:
            package_folder()
        except DomainError as error:
            return [Finding("alfworld", "missing", f"not available: {error}")]
        return [Finding("alfworld", "ok", f"the text game: alfworld {version('alfworld')}")]

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        if self._data is not None:
            return dataset_tasks(self._data, split, count, seed, self._kinds)
        return tasks(split, count, seed, self._receptacles, self._objects, self._kinds)

    def stand_ins(self, count: int) -> list[Task]:
        """Returns games in whole rooms, like downloaded games."""
        return tasks("train", count, 0, None, None, self._kinds)

    def environment(self) -> AlfWorldEnvironment:
        return AlfWorldEnvironment(self._idle_actions, self._listing)

    @staticmethod
    def nano_teacher() -> StepTeacher:
        from rlanything_alfworld.teacher import AlfWorldTeacher

        return AlfWorldTeacher()

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        return self._prompts.policy(task, steps, observation)

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        return self._prompts.judge(task, steps)

    def critic_prompt(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        return self._prompts.critic(failed, rejected)

    def adapter_prompt(
        self,
        root: Task,
        direction: Direction,
        critics: Sequence[str],
        rollouts: Sequence[JudgedTrajectory] = (),
    ) -> Messages:
        return self._prompts.adapter(root, direction, critics, rollouts)

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        """Reads `object: X place: Y`, which may be repeated but not contradicted. The task type
        stays the root's."""
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
        """Returns None: a candidate's plan was already played when it was proposed."""
        return None

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int]:
        """Returns +1 for a step that shortens the expert's plan, or that explores while something
        is unseen."""
        actions, valid = [step.action for step in steps], [step.valid for step in steps]
        return step_labels(load_game(task.data), actions, valid)

    def expert(self, task: Task, steps: Sequence[Step]) -> str:
        """Returns the first command of a shortest plan from the current state."""
        game = load_game(task.data)
        played = [step.action for step in steps if step.valid and step.action is not None]
        return f"{ACTION_MARKER} {plan(game.world().after(played), game.goal)[0]}"


def _range(name: str, given: Sequence[int]) -> tuple[int, int]:
    low, high = [*given, 0, 0][:2]
    if len(given) != 2 or not 1 <= low <= high:
        raise DomainError(f"{name} is {list(given)}: give [fewest, most]")
    return low, high


def _listing(style: object, commands: object) -> Listing:
    if style not in ("nano", "paper"):
        raise DomainError(f"style is {style!r}: give nano or paper")
    if commands not in (None, *LISTINGS):
        raise DomainError(f"commands is {commands!r}: give one of {', '.join(LISTINGS)}")
    if style == "nano" and commands in ("list", "numbered"):
        raise DomainError(
            f"commands is {commands!r}, but the nano prompts show none: set style to paper"
        )
    listing = commands or ("numbered" if style == "paper" else "none")
    return next(each for each in LISTINGS if each == listing)
