"""No policy raises its measured success above its true one by what it says, in any domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from helpers.hostile import COMMANDS, PROGRAMS, TEXTS, WEB_ACTIONS, check, dozen, measured
from rlanything.domains.base import DomainError, Observation, StepResult
from rlanything.domains.text import TextDomain
from rlanything.records import Step, Task
from rlanything_alfworld.domain import AlfWorld
from rlanything_coding.domain import Coding
from rlanything_miniwob.browser import executable
from rlanything_miniwob.domain import MiniWob

PAGES = ("enter-password", "login-user", "enter-text-2", "login-user-popup")
"""Pages that are not won by accident."""


class Careless(TextDomain):
    """Somebody's domain, whose environment trusts what is said."""

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        return [Task(f"{split}-{i}", "Say the number.", data={"number": i}) for i in range(count)]

    def environment(self) -> CarelessEnvironment:
        return CarelessEnvironment()

    def expert(self, task: Task, steps: Sequence[Step]) -> str:
        return f"> {task.data['number']}"


class CarelessEnvironment:
    def reset(self, task: Task) -> Observation:
        self._number = task.data["number"]
        return Observation("?")

    def step(self, response: str) -> StepResult:
        said = int(TextDomain.action_in(response) or "")
        return StepResult(Observation("!"), str(said), True, 1 if said == self._number else -1)


def fenced(program: str) -> str:
    return f"```python\n{program}\n```"


def check_coding(programs: Sequence[str]) -> None:
    domain = Coding(tests=1)
    try:
        tasks = [
            replace(task, data={**task.data, "time_limit_seconds": 0.8})
            for task in domain.tasks("in_domain", 2 * len(programs), 3)
        ]
        attacks = [fenced(program) for program in programs]
        check(*measured(domain, tasks, attacks, 1), len(tasks))
    finally:
        domain.executor.close()


def check_miniwob(attacks: Sequence[str], count: int, max_steps: int) -> None:
    try:
        executable()
    except DomainError as reason:
        pytest.skip(str(reason))
    domain = MiniWob()
    try:
        tasks = [t for t in domain.tasks("train", 200, 3) if t.data["start"]["page"] in PAGES]
        said = [f"> {action}" for action in attacks]
        check(*measured(domain, tasks[:count], said, max_steps), count)
    finally:
        domain.browser.close()


def test_a_careless_environment_counts_every_episode() -> None:
    tasks = Careless().tasks("in_domain", 2 * len(TEXTS), 0)
    evaluation, truth = measured(Careless(), tasks, [f"> {text}" for text in TEXTS], 3, 2)
    check(evaluation, truth, 2 * len(tasks))


def test_coding_counts_every_episode() -> None:
    check_coding(dozen(PROGRAMS, 3))


def test_text_games_count_every_episode() -> None:
    domain = AlfWorld()
    attacks = [*TEXTS, *(f"> {text}" for text in (*TEXTS, *COMMANDS))]
    check(*measured(domain, domain.tasks("in_domain", 8, 3), attacks, 40), 8)


def test_web_tasks_count_every_episode() -> None:
    check_miniwob(dozen(WEB_ACTIONS, 3), 4, 5)


@pytest.mark.slow
def test_coding_counts_every_episode_of_the_whole_list() -> None:
    check_coding([*PROGRAMS, *TEXTS])


@pytest.mark.slow
def test_web_tasks_count_every_episode_of_the_whole_list() -> None:
    check_miniwob(WEB_ACTIONS, 20, 20)
