"""The ors domain: tasks of a server that keeps to the Open Reward Standard."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from rlanything.domains.base import Capabilities, DomainError, SecretVariable
from rlanything.domains.text import TextDomain
from rlanything.records import Messages, Step, Task
from rlanything.seeds import derive
from rlanything_gyms.ecosystem import EpisodeRules
from rlanything_gyms.http_tools import HttpFault, checked_url
from rlanything_gyms.ors.client import OrsClient, OrsPlace
from rlanything_gyms.ors.environment import (
    OrsEnvironment,
    OrsSettings,
    reward_in,
    steps_without_rewards,
)
from rlanything_gyms.tools.calling import CallingOptions
from rlanything_gyms.winning import WinRule


class OrsDomain(TextDomain):
    """Tasks that the policy solves by calling the tools of an ORS server.

    The reward of each step is at the end of its next observation, where only the record and
    `oracle` have it. Raises `DomainError` for invalid options, and later if no such server
    answers."""

    class Options(CallingOptions):
        url: str
        """Address of the server."""
        environment: Annotated[str, Field(min_length=1)] | None = None
        """Name of the environment; None: the server's only one."""
        splits: Annotated[Mapping[str, str], Field(min_length=1)] = Field(
            {"train": "train", "in_domain": "test"}
        )
        """The server's split for each of ours."""
        win: Mapping[str, Any]
        """Condition for winning an episode (`winning.py`): `return` is the sum of the
        rewards of all calls, `reward` the last one."""
        reward_range: Any = None
        """Lowest and highest return; None: any."""
        key_variable: SecretVariable | None = None
        """The environment variable that holds the server's key; None if no key is needed."""
        timeout_seconds: Annotated[float, Field(gt=0)] = 20.0
        """Limit of the requests of one step; keep twice this below
        `environment.timeout_seconds`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        chosen = self.options
        url = checked_url(chosen.url)
        if len(set(chosen.splits.values())) < len(chosen.splits):
            raise DomainError(
                "splits: two of ours have the same tasks, so held-out ones would be trained on: "
                "name different ones"
            )
        key = None if chosen.key_variable is None else os.environ.get(chosen.key_variable)
        if chosen.key_variable is not None and not key:
            raise DomainError(f"key_variable: {chosen.key_variable} is empty: set it to the key")
        self._rules = EpisodeRules.read(
            WinRule.read(chosen.win), chosen.reward_range, chosen.horizon
        )
        name = chosen.environment
        self._place = OrsPlace(url, name or "", key, chosen.timeout_seconds)
        self._counts: dict[str, int] = {}
        """Number of tasks by split of ours, once it was asked for."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(offers_tools=True)

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        theirs = self.options.splits.get(split)
        if theirs is None:
            known = ", ".join(self.options.splits)
            raise DomainError(
                f"split {split!r} has no tasks: name the server's in domain.options.splits, or use "
                f"{known}; for held-out ones set evaluation.splits"
            )
        if split not in self._counts:
            self._counts[split] = self._count(theirs)
        numbers = range(self._counts[split])
        chosen = random.Random(derive(seed, "ors", split)).sample(numbers, min(count, len(numbers)))
        return [self._task(theirs, index) for index in chosen]

    def environment(self) -> OrsEnvironment:
        settings = OrsSettings(self._named(), self._rules, self.options.result_characters)
        return OrsEnvironment(settings)

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int] | None:
        """Returns the sign of each step's reward; 0 without one."""
        del task
        rewards = [reward_in(step.next_observation) or 0.0 for step in steps]
        return [(reward > 0) - (reward < 0) for reward in rewards]

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        return super().judge_prompt(task, steps_without_rewards(steps))

    def value_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        return super().value_prompt(task, steps_without_rewards(steps))

    def _task(self, split: str, index: int) -> Task:
        name = self._named().environment
        data = {"split": split, "index": index}
        return Task(f"{split}-{index}", f"Solve the task of {name}.", name, data)

    def _named(self) -> OrsPlace:
        """Returns the environment's place, with its name. Raises `DomainError`."""
        if not self._place.environment:
            known = self._asked(OrsClient.environments)
            if len(known) != 1:
                raise DomainError(
                    f"the server has the environments {', '.join(known) or '(none)'}: name one in "
                    "domain.options.environment"
                )
            self._place = OrsPlace(self._place.url, known[0], self._place.key, self._place.seconds)
        return self._place

    def _count(self, theirs: str) -> int:
        self._named()
        known = self._asked(OrsClient.splits)
        if theirs not in known:
            raise DomainError(
                f"the server has no split {theirs!r}, but {', '.join(known) or 'none'}: fix "
                "domain.options.splits"
            )
        count = self._asked(lambda client: client.count(theirs))
        if not count:
            raise DomainError(f"the server's split {theirs!r} has no tasks: name another")
        return count

    def _asked(self, ask: Any) -> Any:
        client = OrsClient(self._place)
        try:
            return ask(client)
        except HttpFault as fault:
            raise DomainError(str(fault)) from None
        finally:
            client.close()
