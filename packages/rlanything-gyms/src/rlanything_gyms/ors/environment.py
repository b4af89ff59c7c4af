"""Episodes on an ORS server: the policy calls its tools, and calls earn rewards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rlanything.domains.base import EpisodeError, Observation, StepResult
from rlanything.domains.calls import Said
from rlanything.records import Message, Step, Task
from rlanything.surrogates import whole_characters
from rlanything_gyms.ecosystem import EpisodeRules
from rlanything_gyms.http_tools import HttpFault
from rlanything_gyms.ors.client import FailedCall, OrsClient, OrsPlace
from rlanything_gyms.tools.calling import END, CallingEnvironment, shown_action
from rlanything_gyms.tools.methods import Tool, ToolError
from rlanything_gyms.winning import BadReward, EpisodeEnd, reward_of

_NO_CALL = "error: there is no call in this answer; call a tool"
_NO_REWARD = "[no reward]"
_REWARD = re.compile(r"\[reward (-?\d\S*)\]")
_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class OrsSettings:
    """Options that the environments need."""

    place: OrsPlace
    rules: EpisodeRules
    result_characters: int


class OrsEnvironment(CallingEnvironment):
    """Plays sessions on a server, one after the other."""

    def __init__(self, settings: OrsSettings) -> None:
        super().__init__(settings.rules.horizon, settings.result_characters)
        self._rules = settings.rules
        self._client = OrsClient(settings.place)
        self._finished = False
        self._total = self._last = 0.0
        self._earned: list[float] = []
        """Rewards of the calls of the current answer."""

    def reset(self, task: Task) -> Observation:
        self._finished = False
        self._total = self._last = 0.0
        self._earned = []
        try:
            prompt, specs = self._client.enter(task.data["split"], int(task.data["index"]))
        except HttpFault as fault:
            raise EpisodeError(task.id, str(fault)) from None
        names = [spec.name for spec in specs]
        if len(set(names)) < len(names):
            raise EpisodeError(task.id, "its server has two tools of one name: fix the server")
        tools = [
            Tool(
                spec.name,
                spec.description,
                spec.input_schema or _NO_ARGUMENTS,
                partial(self._called, spec.name),
            )
            for spec in specs
        ]
        return self._opened(task, (Message("user", whole_characters(prompt)),), tools)

    def close(self) -> None:
        """Ends the session."""
        self._client.close()

    def _called(self, name: str, arguments: Mapping[str, Any]) -> str:
        if self._finished:
            raise ToolError("an earlier call has ended the episode")
        try:
            called = self._client.call(name, arguments)
            if called.reward is not None:
                self._last = reward_of(called.reward)
                self._total += self._last
                self._earned.append(self._last)
        except FailedCall as fault:
            raise ToolError(str(fault)) from None
        except BadReward as fault:
            raise self._fault(str(fault)) from None
        except HttpFault as fault:
            # A server that is down is no fault of the call; one that is up fails at this call.
            lost = not fault.gone and self._client.alive()
            raise EpisodeError(self._task.id, str(fault), lost=lost) from None
        self._finished = called.finished
        return called.text

    def _before_calls(self) -> None:
        self._earned = []

    @property
    def _over(self) -> bool:
        return self._finished

    def _notes(self) -> Sequence[str]:
        return [f"[reward {sum(self._earned):g}]" if self._earned else _NO_REWARD]

    def _silent(self, words: Said) -> StepResult:
        """Asks for a call: only the server ends an episode."""
        self._earned = []
        action = shown_action(words)
        if self._answers == self._horizon:
            return self._scored(f"{_NO_CALL}\n{END}", action, valid=False)
        asked = Message("user", _NO_CALL)
        self._rest = (*self._rest, asked)
        return StepResult(self._shown([asked], *self._notes()), action, valid=False)

    def _scored(self, text: str, action: str | None, valid: bool) -> StepResult:
        end = EpisodeEnd(self._total, self._last, self._answers, self._finished)
        try:
            self._rules.rewards.check(self._total)
            won = self._rules.win.holds(end)
        except BadReward as fault:
            raise self._fault(str(fault)) from None
        self._client.leave()
        seen = Observation("\n".join([text, *self._notes()]))
        return StepResult(seen, action, valid, 1 if won else -1, self._total)


def reward_in(observation: str) -> float | None:
    """Returns the reward that a step's next observation records; None: none."""
    recorded = _REWARD.fullmatch(observation.rpartition("\n")[2])
    return None if recorded is None else float(recorded[1])


def without_reward(observation: str) -> str:
    """Returns an observation as the policy saw it."""
    text, _, last = observation.rpartition("\n")
    recorded = last == _NO_REWARD or reward_in(observation) is not None
    return text if recorded else observation


def steps_without_rewards(steps: Sequence[Step]) -> list[Step]:
    """Returns steps without the rewards that they earned."""
    return [
        replace(
            step,
            observation=without_reward(step.observation),
            next_observation=without_reward(step.next_observation),
        )
        for step in steps
    ]
