"""The OSWorld domain: tasks on a desktop with real applications."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from rlanything.domains.base import (
    Capabilities,
    CodeName,
    DomainError,
    DomainOptions,
    EpisodeError,
    File,
    Finding,
    InvalidTask,
    RewriteRequest,
)
from rlanything.domains.screens import Observed, ScreenDomain
from rlanything.records import (
    Completion,
    Messages,
    Step,
    Task,
)
from rlanything_osworld.actions import ACTION_MARKER, USAGE, Notation
from rlanything_osworld.dataset import LISTS, dataset_tasks, downloads
from rlanything_osworld.environment import DesktopEnvironment, DesktopOptions
from rlanything_osworld.evaluation import Evaluators, find_python
from rlanything_osworld.experts import labels, next_action
from rlanything_osworld.families import FAMILIES
from rlanything_osworld.goals import NO_HINT, ORDERED, OWN, offered
from rlanything_osworld.machine import DesktopLost
from rlanything_osworld.packages import findings
from rlanything_osworld.provided import (
    NAMESPACES,
    PROVIDERS,
    ProvidedDesktops,
    ProviderOptions,
)
from rlanything_osworld.published_experts import published_moves
from rlanything_osworld.rewriting import rewritten
from rlanything_osworld.tasks import APPLICATIONS, draft, generated_tasks, goal_of

if TYPE_CHECKING:
    from rlanything_nano.teaching import StepTeacher

log = logging.getLogger(__name__)
ADAPTER = frozenset({"order", "goal", "goals", "hint", "hints"})
"""Placeholders that exist only in its adapter's prompt."""


class OSWorld(ScreenDomain):
    """Tasks on a desktop, generated unless `data` names a folder of OSWorld's own."""

    class Options(DomainOptions):
        data: str | None = None
        """The folder `evaluation_examples` as it is downloaded."""
        actions: Notation = "numbered"
        """How responses name an action."""
        observe: Observed = "text"
        """Input of the models: a screen's text, a screenshot, or both."""
        screenshots: bool = False
        """Whether every screen gets a screenshot, even if the models see none."""
        max_steps: Annotated[int, Field(ge=1)] = 30
        """Steps after which the desktop is scored as it is."""
        prompts: File | None = None
        """Folder whose .txt files replace the shipped prompts."""
        provider: CodeName = NAMESPACES
        """Provider of the machines: `namespaces` on this one, a provider of desktop_env's, or
        `module:Class`."""
        provider_options: dict[str, Any] = Field(default_factory=dict)
        """Options of the provider, see `ProviderOptions`."""
        applications: Sequence[str] = APPLICATIONS
        """Applications of generated tasks; a split needs its own."""
        families: Sequence[str] = tuple(FAMILIES)
        """Kinds of generated tasks; a split needs its own."""

    action_marker = ACTION_MARKER

    def __init__(self, **options: Any) -> None:
        """Raises `DomainError` for options it cannot use."""
        chosen = self.Options.read(options)
        super().__init__("rlanything_osworld", ADAPTER, chosen.prompts, chosen.observe)
        applications, families = chosen.applications, chosen.families
        if not applications:
            raise DomainError("applications is empty: leave it out, or name some")
        for application in applications:
            _one_of("applications", application, APPLICATIONS)
        for family in families:
            _one_of("families", family, tuple(FAMILIES))
        self._applications = tuple(applications)
        self._families = tuple(families)
        self._data = None if chosen.data is None else Path(chosen.data)
        self._machines = _machines(chosen.provider, chosen.provider_options)
        self._options = DesktopOptions(
            notation=chosen.actions,
            text=self._shows_text,
            screenshots=chosen.screenshots or self._shows_images,
            max_steps=chosen.max_steps,
        )
        if self._machines is not None:
            self._options = replace(self._options, size=self._machines.size)
        self._playable: dict[tuple[object, ...], InvalidTask | None] = {}
        """Objections to the goals that were played for candidates; None: playable."""

    @staticmethod
    def checks() -> list[Finding]:
        """Checks the packages of the desktop and the evaluators' Python."""
        try:
            text = f"desktop tasks are scored by desktop-env, in {find_python()}"
        except DomainError as error:
            text = f"desktop tasks are not available: {error}"
            return [*findings(), Finding("osworld", "missing", text)]
        return [*findings(), Finding("osworld", "ok", text)]

    @staticmethod
    def nano_teacher() -> StepTeacher:
        from rlanything_osworld.teacher import OSWorldTeacher

        return OSWorldTeacher()

    @functools.cached_property
    def evaluators(self) -> Evaluators:
        """The desktop_env process of this process. Raises `DomainError` if there is no such
        Python."""
        given = None if self._data is None else downloads(self._data)
        return Evaluators(find_python(), given)

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        if self._data is not None:
            online = self._machines is not None
            return dataset_tasks(self._data, split, count, seed, online)
        return generated_tasks(split, count, seed, self._applications, self._families)

    def stand_ins(self, count: int) -> list[Task]:
        """Returns generated tasks."""
        return generated_tasks("train", count, 0, self._applications, self._families)

    @property
    def capabilities(self) -> Capabilities:
        own = super().capabilities
        # A candidate is played in this process, while workers have the machine.
        free = self._machines is None or not self._machines.one_machine
        return replace(
            own,
            rewrites_tasks=own.rewrites_tasks and free,
            screen_size=self._options.size,
            whole_splits=LISTS,
        )

    def environment(self) -> DesktopEnvironment:
        desktops = None
        if self._machines is not None:
            desktops = ProvidedDesktops(find_python(), self._machines)
        return DesktopEnvironment(self.evaluators, self._options, desktops)

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        return self._ask_policy(task, steps, observation, self._usage())

    def adapter_prompt(self, request: RewriteRequest) -> Messages:
        """Returns the goals of the root's set-up, the easiest first; OSWorld's own tasks have one
        each, unless a user prepared more."""
        return self._ask_adapter(request, **_choices(request.root))

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        """Returns a task with another goal or hint on the root's set-up. It has been played: it is
        not already done at the start, and the expert can do it. Without an expert for it, only the
        candidate's rollouts can show that it can be done."""
        task = rewritten(root, task_id, completion)
        made = task.data.get("generated")
        if made is None:
            goal = (root.id, task.data["chosen"]["goal"])
        else:
            goal = (made["family"], made["seed"], made["goal"])
        if goal not in self._playable:  # a hint does not change whether the task can be done
            try:
                self._playable[goal] = self._refusal(task)
            except (EpisodeError, DesktopLost) as fault:  # this may be temporary
                raise InvalidTask(str(fault), "unsolvable") from fault
        refusal = self._playable[goal]
        if refusal is not None:
            raise refusal
        return task

    def _refusal(self, task: Task) -> InvalidTask | None:
        """Plays a task, untouched and by its expert, and returns the objection to it, if any.
        Raises `EpisodeError`."""
        if self._outcome(task, expert=False) == 1:
            return InvalidTask("it is done before anything is done")
        if not self._has_expert(task):
            log.info("%s: not done untouched; without an expert no more is known", task.id)
        elif self._outcome(task, expert=True) != 1:
            return InvalidTask("the expert cannot do it", "unsolvable")
        return None

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int] | None:
        """Returns +1 for a step of a generated task that its expert would have taken on that
        screen, regardless of earlier steps; None for OSWorld's own tasks."""
        goal = goal_of(task) if self._reads_numbers else None
        return None if goal is None else labels(goal.moves, steps)

    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        """Returns the next response of an expert, or None if it is lost. On OSWorld's own tasks it
        gives up with `fail` instead, which is right for infeasible ones."""
        if not self._reads_numbers:
            return None
        goal = goal_of(task)
        moves = published_moves(task) if goal is None else goal.moves
        action = None if moves is None else next_action(moves, steps)
        if action is None and goal is None:
            action = "fail"
        return None if action is None else f"{ACTION_MARKER} {action}"

    @property
    def _reads_numbers(self) -> bool:
        """Whether an expert can play: it names elements by their numbers in the text."""
        return self._options.notation == "numbered" and self._shows_text

    def _has_expert(self, task: Task) -> bool:
        """Returns whether an expert has to win a candidate."""
        return "generated" in task.data or (
            self._reads_numbers and published_moves(task) is not None
        )

    def _usage(self) -> str:
        usage = USAGE[self._options.notation]
        return usage if self._options.notation == "pyautogui" else f"{ACTION_MARKER} and {usage}"

    def _outcome(self, task: Task, expert: bool) -> int | None:
        """Plays a task, by its expert or by declaring it done at once. Raises `EpisodeError`."""
        environment = self.environment()
        steps = list[Step]()
        try:
            screen = environment.reset(task).text
            while True:
                response = self.expert(task, steps) if expert else f"{ACTION_MARKER} DONE"
                if response is None:
                    return None
                result = environment.step(response)
                if result.outcome is not None:
                    return result.outcome
                said = Completion.unsampled(response)
                after = result.observation.text
                steps.append(Step(screen, said, result.action, result.valid, after))
                screen = after
        finally:
            environment.close()


def _choices(root: Task) -> dict[str, str]:
    """Returns the text of the adapter's prompt about the goals that a root task offers."""
    made = root.data.get("generated")
    if made is not None:
        goals = [goal.name for goal in draft(FAMILIES[made["family"]], made["seed"]).goals]
        chosen = {"goal": made["goal"], "hint": "yes" if made["hinted"] else "no"}
        return {**chosen, "order": ORDERED, "goals": ", ".join(goals), "hints": "yes or no"}
    if "goals" in root.data:
        return offered(root)
    return {"order": ORDERED, "goal": OWN, "goals": OWN, "hint": NO_HINT, "hints": NO_HINT}


def _one_of(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise DomainError(f"{name} is {value!r}: use one of {', '.join(known)}")


def _machines(provider: str, options: Mapping[str, Any]) -> ProviderOptions | None:
    """Returns the requested machines; None: namespaces."""
    if provider == NAMESPACES:
        if options:
            raise DomainError(f"provider_options: namespaces have none; give them to {PROVIDERS}")
        return None
    known = [field.name for field in fields(ProviderOptions)][1:]
    for name in options:
        _one_of("provider_options", name, known)
    return ProviderOptions(provider, **options)
