"""Episodes in which the policy calls tools: every answer is a step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlanything.domains.base import (
    DomainError,
    EpisodeError,
    InvalidTask,
    Observation,
    StepResult,
)
from rlanything.domains.calls import Said, parse_calls
from rlanything.domains.requests import ModelRequest, Reply
from rlanything.domains.thoughts import bare_thought
from rlanything.domains.winning import BadReward, WinRule
from rlanything.records import Completion, Message, Messages, Task, ToolCall
from rlanything.surrogates import whole_characters
from rlanything_gyms.ecosystem import OwnRandomness
from rlanything_gyms.tools.methods import (
    Factory,
    Tool,
    ToolError,
    as_text,
    check_reset,
    made,
    method_tools,
    said,
    settled,
)
from rlanything_gyms.tools.reward import Played, RewardFunction, check_reward, reward_for
from rlanything_gyms.tools.rows import opening
from rlanything_gyms.tools.servers import ServersSettings

_END = "The episode has ended."
_ACTION_CHARACTERS = 200
_UNREADABLE = "error: this call cannot be read; write it in the format for calls, and close it"


@dataclass(frozen=True, slots=True)
class ToolsSettings:
    """Options that the environments need."""

    environments: Mapping[str, Factory]
    """Classes by the rows' column `environment`; a single one has the name ""."""
    servers: ServersSettings | None
    reward: RewardFunction | None
    win: WinRule
    horizon: int | None
    result_characters: int


class ToolsEnvironment:
    """Offers tools to the policy and carries out its calls."""

    def __init__(self, settings: ToolsSettings) -> None:
        self._settings = settings
        self._instances: dict[str, tuple[Any, list[Tool]]] = {}
        """Instances with their tools, by name; they are used again as in TRL."""
        self._servers: Any = None
        if settings.servers is not None:
            from rlanything_gyms.tools.sessions import Servers  # needs the extra `mcp`

            self._servers = Servers(settings.servers)
        self._randomness = OwnRandomness()
        self._task = Task("", "")
        self._instance: Any = None
        self._tools: dict[str, Tool] = {}
        self._opening: Messages = ()
        self._rest: tuple[Message, ...] = ()
        self._answers = 0

    def look(self, task: Task) -> None:
        """Makes what the episode of a task needs, to detect errors that would occur in every one.
        Raises `DomainError` and `EpisodeError`."""
        self._ready(task)
        row = task.data["row"]
        if self._instance is not None:
            check_reset(self._instance, self._columns(row))
        check_reward(Played(row, (), (), self._instance, self._servers), self._settings.reward)

    def reset(self, task: Task) -> Observation:
        self._task, self._answers, self._rest = task, 0, ()
        self._ready(task)
        row = task.data["row"]
        seen = None
        if self._instance is not None:
            self._randomness.seed(int(task.data["seed"]))
            try:
                with self._randomness.used():
                    seen = settled(self._instance.reset(**self._columns(row)))
            except (EpisodeError, DomainError):
                raise
            except InvalidTask as fault:
                raise EpisodeError(task.id, f"its environment calls it invalid: {fault}") from None
            except (Exception, SystemExit) as fault:  # the class's own error
                raise EpisodeError(task.id, f"reset failed ({said(fault)})") from fault
        self._opening = opening(row.get("prompt"), None if seen is None else _clean(as_text(seen)))
        return self._shown(self._opening, f"[tools] {', '.join(self._tools)}")

    def take(self, reply: Reply) -> None:
        """Does nothing: calls are carried out once their results are needed."""

    def step(self, response: str) -> StepResult:
        """Carries out the calls in a text whose tokens are unknown."""
        return self.reply(Reply(self._request_id(), Completion.unsampled(response)))

    def reply(self, reply: Reply) -> StepResult:
        """Carries out the calls in an answer, in their order. An answer without calls ends the
        episode."""
        if reply.request != self._request_id():
            raise self._fault(
                "its tools, called again with the same arguments, returned something else; let "
                "them depend on the task and the calls alone"
            )
        if reply.completion is None:  # such as a chat that is longer than the model's context
            return self._scored(f"{_END} {reply.refused}", None, valid=False)
        self._answers += 1
        completion = reply.completion
        functions = [tool.function for tool in self._tools.values()]
        words = parse_calls(completion.answer, functions, completion.call_family)
        thought = bare_thought(completion.text[: completion.answer_at])
        answer = Message("assistant", words.content, calls=words.calls, thought=thought)
        self._rest = (*self._rest, answer)
        if words.readable and not words.calls:
            return self._scored(_END, _action(words), valid=True)
        results, valid = self._results(words)
        self._rest = (*self._rest, *results)
        if self._answers == self._settings.horizon:
            ended = f"{_lines(results)}\n{_END}"
            return self._scored(ended, _action(words), valid)
        return StepResult(self._shown(results), _action(words), valid)

    def close(self) -> None:
        """Ends the MCP sessions and forgets the instances."""
        if self._servers is not None:
            self._servers.stop()
        self._instances = {}
        self._instance = None

    def _ready(self, task: Task) -> None:
        """Makes the instance and the tools of an episode."""
        tools: list[Tool] = []
        self._instance = None
        if self._settings.environments:
            row = task.data["row"]
            name = "" if "" in self._settings.environments else row.get("environment")
            factory = self._settings.environments.get(name)
            if factory is None:
                known = ", ".join(self._settings.environments)
                raise EpisodeError(
                    task.id, f"its column environment is {name!r:.80}; write one of {known}"
                )
            place = getattr(factory, "__qualname__", str(factory))
            if name not in self._instances:
                with self._randomness.used():
                    instance = made(factory, place)
                self._instances[name] = instance, method_tools(instance, place)
            self._instance, methods = self._instances[name]
            tools += methods
        if self._servers is not None:
            tools += self._servers.start(task.id, with_names=bool(tools))
        names = [tool.name for tool in tools]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None or not tools:
            lack = "there are no tools" if twice is None else f"two tools are named {twice!r}"
            raise DomainError(f"{lack}: offer public methods or MCP tools with different names")
        self._tools = {tool.name: tool for tool in tools}

    def _columns(self, row: Mapping[str, Any]) -> dict[str, Any]:
        single = "" in self._settings.environments
        return {name: row[name] for name in row if single or name != "environment"}

    def _results(self, words: Said) -> tuple[list[Message], bool]:
        """Returns the results of the calls of an answer, and whether all were carried out."""
        if not words.readable:
            return [Message("user", _UNREADABLE)], False
        if self._servers is not None:
            self._servers.begin_calls()
        results = [self._result(call) for call in words.calls]
        most = self._settings.result_characters
        messages = [
            Message("tool", cut(_clean(text), most), name=call.name)
            for call, (text, _) in zip(words.calls, results, strict=True)
        ]
        return messages, all(carried_out for _, carried_out in results)

    def _result(self, call: ToolCall) -> tuple[str, bool]:
        """Returns the result of a call, and whether it was carried out."""
        tool = self._tools.get(call.name)
        try:
            if tool is None:
                raise ToolError(f"there is no tool {call.name!r:.80}, but {', '.join(self._tools)}")
            with self._randomness.used():
                return tool.call(json.loads(call.arguments)), True
        except ToolError as fault:
            return f"error: {fault}", False

    def _scored(self, text: str, action: str | None, valid: bool) -> StepResult:
        """Returns the last step. Raises `EpisodeError` if the reward cannot be computed."""
        played = Played(
            self._task.data["row"], self._opening, self._rest, self._instance, self._servers
        )
        if self._servers is not None:
            self._servers.begin_calls()
        try:
            with self._randomness.used():
                reward = reward_for(played, self._settings.reward)
        except EpisodeError:
            raise
        except BadReward as fault:
            raise self._fault(str(fault)) from None
        except (Exception, SystemExit) as fault:  # the function's own error
            raise self._fault(f"reward failed ({said(fault)})") from fault
        won = self._settings.win.reached(reward)
        notes = [] if self._servers is None else self._servers.stop()
        seen = Observation("\n".join([text, *notes]))
        return StepResult(seen, action, valid, 1 if won else -1, reward)

    def _fault(self, reason: str) -> EpisodeError:
        """Returns the error of an episode that an answer may have caused."""
        return EpisodeError(self._task.id, reason, lost=self._answers > 0)

    def _shown(self, new: Sequence[Message], *more: str) -> Observation:
        """Returns the request for the next answer; its text has what is new in it."""
        request = ModelRequest(
            self._request_id(),
            (*self._opening, *self._rest),
            tuple(tool.function for tool in self._tools.values()),
            self._answers - 1 if self._answers else None,
        )
        return Observation("\n".join([_lines(new), *more]), request=request)

    def _request_id(self) -> str:
        said_so_far = repr((self._opening, self._rest, self._answers))
        return hashlib.sha256(said_so_far.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def cut(text: str, most: int) -> str:
    """Returns at most this many characters of a text, and a line that says so if there are more."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[cut: the result has {len(text):,} characters, only {most:,} are shown]"


def _clean(text: str) -> str:
    return whole_characters(text)


def _action(words: Said) -> str:
    calls = "; ".join(f"{call.name}({call.arguments})" for call in words.calls)
    text = calls or " ".join(words.content.split())
    return text if len(text) <= _ACTION_CHARACTERS else f"{text[:_ACTION_CHARACTERS]} ..."


def _lines(messages: Sequence[Message]) -> str:
    """Returns messages as an observation; user messages get no heading."""
    return "\n".join(
        message.content if message.role == "user" else f"[{message.role}] {message.content}"
        for message in messages
    )
