"""The OSWorld domain: tasks on a desktop with real applications."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from rlanything.domains.base import DomainError, EpisodeError, Finding, InvalidTask
from rlanything.domains.osworld.actions import ACTION_MARKER, USAGE, Notation
from rlanything.domains.osworld.dataset import dataset_tasks, downloads
from rlanything.domains.osworld.environment import DesktopEnvironment, DesktopOptions
from rlanything.domains.osworld.evaluation import Evaluators, find_python
from rlanything.domains.osworld.experts import next_action
from rlanything.domains.osworld.families import FAMILIES
from rlanything.domains.osworld.packages import findings
from rlanything.domains.osworld.rewriting import rewritten
from rlanything.domains.osworld.tasks import draft, generated_tasks, goal_of
from rlanything.domains.templates import CRITIC_STEP, Templates
from rlanything.records import (
    Completion,
    Direction,
    JudgedTrajectory,
    Message,
    Messages,
    Step,
    Task,
    Trajectory,
)

PLACEHOLDERS: dict[str, frozenset[str]] = {
    "policy": frozenset({"task", "screen", "done", "usage"}),
    "judge": frozenset({"task", "screen", "done", "response", "after"}),
    "critic": frozenset({"task", "steps", "screen"}),
    "critic_step": CRITIC_STEP,
    "adapter": frozenset({"direction", "task", "goal", "goals", "hint", "critics"}),
}
Observed = Literal["text", "screenshot", "both"]


class OSWorld:
    """Tasks on a desktop, generated unless `data` names a folder of OSWorld's own.

    `data`: the folder `evaluation_examples` as it is downloaded. `actions`: `numbered`,
    `computer_13` or `pyautogui`. `observe`: `text`, `screenshot` or `both`. `max_steps`: steps
    after which the desktop is scored as it is. `python`: that of desktop_env, where `make osworld`
    did not make it. `prompts`: a folder whose .txt files replace the shipped prompts. Raises
    `DomainError` for options it cannot use."""

    action_marker = ACTION_MARKER

    def __init__(
        self,
        data: str | None = None,
        actions: Notation = "numbered",
        observe: Observed = "text",
        max_steps: int = 30,
        python: str | None = None,
        prompts: str | None = None,
    ) -> None:
        _one_of("actions", actions, get_args(Notation))
        _one_of("observe", observe, get_args(Observed))
        if type(max_steps) is not int or max_steps < 1:
            raise DomainError(f"max_steps is {max_steps!r}: give a whole number from 1 on")
        self._data = None if data is None else Path(data)
        self._python = python
        self._options = DesktopOptions(
            notation=actions,
            text=observe != "screenshot",
            screenshots=observe != "text",
            max_steps=max_steps,
        )
        self._templates = Templates("rlanything.domains.osworld", PLACEHOLDERS, prompts)

    @staticmethod
    def checks() -> list[Finding]:
        """Looks for the packages of the desktop and the evaluators' Python."""
        try:
            text = f"desktop tasks are scored by desktop-env, in {find_python(None)}"
        except DomainError as error:
            text = f"desktop tasks are not available: {error}"
        return [*findings(), Finding("osworld", True, text)]

    @functools.cached_property
    def evaluators(self) -> Evaluators:
        """desktop_env's process of this one. Raises `DomainError` where there is no such Python."""
        given = None if self._data is None else downloads(self._data)
        return Evaluators(find_python(self._python), given)

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        if self._data is not None:
            return dataset_tasks(self._data, split, count, seed)
        return generated_tasks(split, count, seed)

    def environment(self) -> DesktopEnvironment:
        return DesktopEnvironment(self.evaluators, self._options)

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        """Returns one message, however many steps there were: the screen shows their result."""
        text = self._templates.render(
            "policy",
            task=task.instruction,
            screen=observation,
            done=_done(steps),
            usage=self._usage(),
        )
        return (Message("user", text),)

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        """Returns the last step with the screens before and after it."""
        *before, last = steps
        text = self._templates.render(
            "judge",
            task=task.instruction,
            done=_done(before),
            screen=last.observation,
            response=last.response,
            after=last.next_observation,
        )
        return (Message("user", text),)

    def critic_prompt(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        trajectory = failed.trajectory
        text = self._templates.render(
            "critic",
            task=trajectory.task.instruction,
            steps=self._templates.critic_steps(failed, rejected),
            screen=trajectory.steps[-1].observation,
        )
        return (Message("user", text),)

    def adapter_prompt(
        self,
        root: Task,
        direction: Direction,
        critics: Sequence[str],
        rollouts: Sequence[JudgedTrajectory] = (),
    ) -> Messages:
        """Returns the goals of the root's set-up, the easiest first; OSWorld's own have one."""
        del rollouts
        made = root.data.get("generated")
        goals = ["given"]
        if made is not None:
            goals = [goal.name for goal in draft(FAMILIES[made["family"]], made["seed"]).goals]
        text = self._templates.render(
            "adapter",
            direction=direction,
            task=root.instruction,
            goal="given" if made is None else made["goal"],
            goals=", ".join(goals),
            hint="yes" if made is not None and made["hinted"] else "no",
            critics=" ".join(critics) or "none",
        )
        return (Message("user", text),)

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        """Returns a task with another goal or hint on the root's set-up; it was played: it is not
        done untouched, and the expert does it."""
        task = rewritten(root, task_id, completion)
        try:
            if self._outcome(task, expert=False) == 1:
                raise InvalidTask("it is done before anything is done")
            if self._outcome(task, expert=True) != 1:
                raise InvalidTask("the expert cannot do it", "unsolvable")
        except EpisodeError as fault:
            raise InvalidTask(fault.reason, "unsolvable") from fault
        return task

    def objection(self, task: Task, trajectories: Sequence[Trajectory]) -> str | None:
        del task, trajectories  # an expert did a candidate when it was proposed
        return None

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int] | None:
        """Returns None: a desktop has many ways, and the expert knows one."""
        del task, steps
        return None

    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        """Returns the next response of a generated task's expert, as long as all steps were its
        own."""
        goal = goal_of(task)
        if goal is None or self._options.notation != "numbered" or not self._options.text:
            return None
        action = next_action(goal.moves, steps)
        return None if action is None else f"{ACTION_MARKER} {action}"

    def _usage(self) -> str:
        usage = USAGE[self._options.notation]
        return usage if self._options.notation == "pyautogui" else f"{ACTION_MARKER} and {usage}"

    def _outcome(self, task: Task, expert: bool) -> int | None:
        """Plays a task, by its expert or by saying at once that it is done. Raises
        `EpisodeError`."""
        environment = self.environment()
        steps = list[Step]()
        try:
            screen = environment.reset(task).text
            while True:
                response = self.expert(task, steps) if expert else f"{ACTION_MARKER} done"
                if response is None:
                    return None
                result = environment.step(response)
                if result.outcome is not None:
                    return result.outcome
                said, after = Completion.unsampled(response), result.observation.text
                steps.append(Step(screen, said, result.action, result.valid, after))
                screen = after
        finally:
            environment.close()


def _one_of(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise DomainError(f"{name} is {value!r}: use one of {', '.join(known)}")


def _done(steps: Sequence[Step]) -> str:
    return "; ".join(step.action or "nothing" for step in steps) or "nothing"
