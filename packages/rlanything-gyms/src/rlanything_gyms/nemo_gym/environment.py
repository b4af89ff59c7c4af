"""Episodes on a resources server of NeMo Gym: its tools, and its verdict at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote

from rlanything.domains.base import EpisodeError, Observation, StepResult
from rlanything.domains.calls import Said
from rlanything.records import Message, Task
from rlanything.surrogates import whole_characters
from rlanything_gyms.ecosystem import EpisodeRules
from rlanything_gyms.http_tools import HttpFault, HttpServer, RefusedRequest
from rlanything_gyms.nemo_gym.rows import functions, opening, response_to_verify
from rlanything_gyms.tools.calling import CallingEnvironment
from rlanything_gyms.tools.methods import Tool, ToolError
from rlanything_gyms.winning import BadReward, reward_of


@dataclass(frozen=True, slots=True)
class NemoGymSettings:
    """Options that the environments need."""

    url: str
    rules: EpisodeRules
    result_characters: int
    seconds: float
    """Limit of the requests of one step."""


class NemoGymEnvironment(CallingEnvironment):
    """Plays sessions on a server, one after the other."""

    def __init__(self, settings: NemoGymSettings) -> None:
        super().__init__(settings.rules.horizon, settings.result_characters)
        self._settings = settings
        self._server = HttpServer("NeMo Gym", settings.url, {}, settings.seconds)
        self._until = 0.0

    def reset(self, task: Task) -> Observation:
        row = task.data["row"]
        self._server.forget()
        try:
            self._server.json("POST", "/seed_session", row)
        except HttpFault as fault:
            raise EpisodeError(task.id, str(fault)) from None
        tools = [
            Tool(**function, call=partial(self._called, function["name"]))
            for function in functions(row)
        ]
        return self._opened(task, opening(row), tools)

    def close(self) -> None:
        """Closes the connections."""
        self._server.close()

    def _results(self, words: Said) -> tuple[list[Message], bool]:
        row = self._task.data["row"]
        if row["responses_create_params"].get("parallel_tool_calls") is False:
            words = replace(words, calls=words.calls[:1])
            self._rest = (*self._rest[:-1], replace(self._rest[-1], calls=words.calls))
        return super()._results(words)

    def _before_calls(self) -> None:
        self._until = self._server.limit()

    def _called(self, name: str, arguments: Mapping[str, Any]) -> str:
        path = f"/{quote(name, safe='')}"
        try:
            parts = self._server.parts("POST", path, dict(arguments), until=self._until)
            return b"".join(parts).decode(errors="replace")
        except RefusedRequest as refused:
            if refused.gone and refused.status != 404:
                raise self._broken(refused) from None
            raise ToolError(refused.body) from None  # as in NeMo Gym, the policy reads it
        except HttpFault as fault:
            raise self._broken(fault) from None

    def _scored(self, text: str, action: str | None, valid: bool) -> StepResult:
        row = self._task.data["row"]
        response = response_to_verify(row, self._rest, self._request_id())
        body = json.dumps({**row, "response": response}, ensure_ascii=False)
        sent = json.loads(whole_characters(body))
        try:
            verified = self._server.json("POST", "/verify", sent)
            reward = reward_of(verified.get("reward") if isinstance(verified, Mapping) else None)
            self._settings.rules.rewards.check(reward)
        except BadReward as fault:
            raise self._fault(f"{self._server.place} verifies: {fault}") from None
        except HttpFault as fault:
            raise self._broken(fault) from None
        won = self._settings.rules.win.reached(reward)
        return StepResult(Observation(text), action, valid, 1 if won else -1, reward)

    def _broken(self, fault: HttpFault) -> EpisodeError:
        """Returns the error of a server that fails. One that is down is no fault of the calls; one
        that is up fails at them."""
        lost = self._answers > 0 and not fault.gone and self._server.healthy("/")
        return EpisodeError(self._task.id, str(fault), lost=lost)
