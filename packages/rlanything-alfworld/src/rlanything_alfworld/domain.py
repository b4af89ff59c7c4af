"""The AlfWorld domain: household games on the TextWorld engine."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from rlanything.domains.base import (
    Domain,
    DomainError,
    DomainOptions,
    File,
    Finding,
    InvalidTask,
    MissingData,
    RewriteRequest,
)
from rlanything.records import (
    JudgedTrajectory,
    Messages,
    Step,
    Task,
)
from rlanything_alfworld.assets import package_folder
from rlanything_alfworld.commands import ACTION_MARKER, Listing
from rlanything_alfworld.dataset import dataset_tasks
from rlanything_alfworld.environment import AlfWorldEnvironment, InvalidRule
from rlanything_alfworld.expert import NoPlanError, plan
from rlanything_alfworld.goal import KINDS, Goal
from rlanything_alfworld.nano_prompts import NanoPrompts
from rlanything_alfworld.paper_prompts import PaperPrompts
from rlanything_alfworld.step_labels import step_labels
from rlanything_alfworld.tasks import load_game, tasks, with_goal

if TYPE_CHECKING:
    from rlanything_nano.teaching import StepTeacher

_FIELD = re.compile(
    r"""\b(object|place):(?:[ \t\r\n]*(\w+)(?=[ \t\r\n.,;!?)\]"'`*<]|\Z))?""",
    re.ASCII | re.IGNORECASE,
)


class AlfWorld(Domain):
    """Household games in text, generated unless `data` names a folder of downloaded ones."""

    class Options(DomainOptions):
        receptacles: Sequence[int] = (4, 7)
        """Smallest and largest number of receptacles in a generated scene."""
        objects: Sequence[int] = (5, 9)
        """Smallest and largest number of objects in a generated scene."""
        kinds: Sequence[str] = KINDS
        """Task types."""
        prompts: File | None = None
        """Folder whose .txt files replace the prompts of the style."""
        data: str | None = None
        """Folder of AlfWorld's own games (`json_2.1.1`, which `alfworld-download` makes), with
        their scene sizes."""
        style: Literal["nano", "paper"] = "nano"
        """Prompts: `nano` (short, for the nano models) or `paper` (full length, for large ones)."""
        commands: Listing | None = None
        """How prompts list the possible commands; with numbers or a list, responses may name one in
        a box. None: `numbered` with the paper's style, the only one that can."""
        idle_actions: bool = False
        """Whether look, inventory and examine are possible."""
        invalid: InvalidRule = "refuse"
        """How a response without a possible command counts: `refuse`, it changes nothing and the
        next observation says so; `first`, it plays the first of the possible commands, as in the
        paper's published code."""
        history: Annotated[int, Field(ge=0)] | None = None
        """Number of latest steps that the paper's policy prompt repeats; None: all."""
        first_of_kind: bool = False
        """Whether the nano prompts name only the first unseen place of each kind, as suits full
        houses."""

    action_marker = ACTION_MARKER

    def __init__(self, **options: Any) -> None:
        """Raises `DomainError` for options it cannot use."""
        chosen = self.Options.read(options)
        self._receptacles = _range("receptacles", chosen.receptacles)
        self._objects = _range("objects", chosen.objects)
        self._kinds = tuple(chosen.kinds)
        self._data = chosen.data
        self._listing: Listing = _listing(chosen.style, chosen.commands)
        if chosen.style == "nano" and chosen.history is not None:
            raise DomainError("history: the nano prompts show every step: set style to paper")
        self._idle_actions = chosen.idle_actions
        self._invalid: InvalidRule = chosen.invalid
        self._prompts = (
            PaperPrompts(chosen.prompts, self._listing, chosen.history)
            if chosen.style == "paper"
            else NanoPrompts(chosen.prompts, chosen.first_of_kind)
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
        return AlfWorldEnvironment(self._idle_actions, self._listing, self._invalid)

    @staticmethod
    def nano_teacher() -> StepTeacher:
        from rlanything_alfworld.teacher import AlfWorldTeacher

        return AlfWorldTeacher()

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        return self._prompts.policy(task, steps, observation)

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        return self._prompts.judge(task, steps)

    def value_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        if isinstance(self._prompts, NanoPrompts):
            return self._prompts.judge(task, steps, "value_question")
        return super().value_prompt(task, steps)

    def critic_prompt(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        return self._prompts.critic(failed, rejected)

    def adapter_prompt(self, request: RewriteRequest) -> Messages:
        return self._prompts.adapter(request)

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

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int]:
        """Returns +1 for a step that shortens the expert's plan, or that explores while something
        is unseen."""
        actions, valid = [step.action for step in steps], [step.valid for step in steps]
        return step_labels(load_game(task.data), actions, valid)

    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        """Returns the first command of a shortest plan from the current state; None in a dead
        end."""
        game = load_game(task.data)
        played = [step.action for step in steps if step.valid and step.action is not None]
        try:
            return f"{ACTION_MARKER} {plan(game.world().after(played), game.goal)[0]}"
        except NoPlanError:
            return None


PUBLISHED_GAMES = "RLANYTHING_ALFWORLD_DATA"
"""The environment variable that names the folder of downloaded games."""


class PublishedAlfWorld(AlfWorld):
    """AlfWorld's published games (`alfworld-download`), with all admissible commands but `help`."""

    class Options(AlfWorld.Options):
        data: str | None = Field(default_factory=lambda: os.environ.get(PUBLISHED_GAMES))
        """Folder of the games, `json_2.1.1` or the one around it; left out, the environment
        variable RLANYTHING_ALFWORLD_DATA names it."""
        idle_actions: bool = True
        """Whether look, inventory and examine are possible."""
        first_of_kind: bool = True
        """Whether the nano prompts name only the first unseen place of each kind."""

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        if self._data is None:
            raise MissingData(
                f"no published games: run alfworld-download and set {PUBLISHED_GAMES} "
                "to the folder json_2.1.1 that it makes"
            )
        return super().tasks(split, count, seed)

    @staticmethod
    def nano_teacher() -> StepTeacher:
        from rlanything_alfworld.teacher import PublishedTeacher

        return PublishedTeacher()


def _range(name: str, given: Sequence[int]) -> tuple[int, int]:
    low, high = [*given, 0, 0][:2]
    if len(given) != 2 or not 1 <= low <= high:
        raise DomainError(f"{name} is {list(given)}: give [fewest, most]")
    return low, high


def _listing(style: Literal["nano", "paper"], commands: Listing | None) -> Listing:
    if style == "nano" and commands in ("list", "numbered"):
        raise DomainError(
            f"commands is {commands!r}, but the nano prompts show none: set style to paper"
        )
    return commands or ("numbered" if style == "paper" else "none")
