"""Episodes in which the policy calls tools, in its model's own format: every answer is a step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from rlanything.domains.base import DomainOptions, EpisodeError, Observation, StepResult
from rlanything.domains.calls import Said, parse_calls
from rlanything.domains.requests import ModelRequest, Reply
from rlanything.domains.thoughts import bare_thought
from rlanything.records import Completion, Message, Messages, Task, ToolCall
from rlanything.surrogates import whole_characters
from rlanything_gyms.tools.methods import Tool, ToolError

END = "The episode has ended."
_ACTION_CHARACTERS = 200
_UNREADABLE = "error: this call cannot be read; write it in the format for calls, and close it"


class CallingOptions(DomainOptions):
    """Options that domains with tools share."""

    horizon: Annotated[int, Field(ge=1)] | None = None
    """Answers after which an episode is cut off and scored as it stands; None: `loop.max_steps`, at
    which it is lost."""
    result_characters: Annotated[int, Field(ge=1)] = 16384
    """Length from which a result is cut."""


class CallingEnvironment:
    """Offers tools to the policy and carries out its calls. Subclasses begin episodes with
    `_opened` in their `reset`, and score them."""

    def __init__(self, horizon: int | None, result_characters: int) -> None:
        """`horizon`: answers after which an episode is cut off and scored as it stands (None:
        never); `result_characters`: length from which a result is cut."""
        self._horizon = horizon
        self._result_characters = result_characters
        self._task = Task("", "")
        self._tools: dict[str, Tool] = {}
        self._opening: Messages = ()
        self._rest: tuple[Message, ...] = ()
        """Answers of the policy and results of its calls."""
        self._answers = 0

    def _scored(self, text: str, action: str | None, valid: bool) -> StepResult:
        """Returns the last step of an episode. Raises `EpisodeError` if it cannot be scored."""
        raise NotImplementedError

    def _silent(self, words: Said) -> StepResult:
        """Returns the step of an answer without calls, which ends the episode."""
        return self._scored(END, shown_action(words), valid=True)

    def _before_calls(self) -> None:
        """Called before the calls of an answer are carried out."""

    def _carried_out(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Returns the result of a call. Raises what `Tool.call` does."""
        return tool.call(arguments)

    @property
    def _over(self) -> bool:
        """Whether the calls have ended the episode."""
        return False

    def _notes(self) -> Sequence[str]:
        """Returns lines for the record of a step, which the policy does not see."""
        return ()

    def take(self, reply: Reply) -> None:
        """Does nothing: calls are carried out once their results are needed."""

    def step(self, response: str) -> StepResult:
        """Carries out the calls in a text whose tokens are unknown."""
        return self.reply(Reply(self._request_id(), Completion.unsampled(response)))

    def reply(self, reply: Reply) -> StepResult:
        """Carries out the calls in an answer, in their order. An answer without calls ends the
        episode, unless the subclass decides otherwise."""
        if reply.request != self._request_id():
            raise EpisodeError(  # not lost: another episode may have ended the worker
                self._task.id,
                "its tools, called again with the same arguments, returned something else; let "
                "them depend on the task and the calls alone",
            )
        if reply.completion is None:  # such as a chat that is longer than the model's context
            return self._scored(f"{END} {reply.refused}", None, valid=False)
        self._answers += 1
        completion = reply.completion
        functions = [tool.function for tool in self._tools.values()]
        words = parse_calls(completion.answer, functions, completion.call_family)
        thought = bare_thought(completion.text[: completion.answer_at])
        answer = Message("assistant", words.content, calls=words.calls, thought=thought)
        self._rest = (*self._rest, answer)
        if words.readable and not words.calls:
            return self._silent(words)
        results, valid = self._results(words)
        self._rest = (*self._rest, *results)
        if self._over or self._answers == self._horizon:
            ended = f"{lines(results)}\n{END}"
            return self._scored(ended, shown_action(words), valid)
        return StepResult(self._shown(results, *self._notes()), shown_action(words), valid)

    def _opened(self, task: Task, opening: Messages, tools: Sequence[Tool]) -> Observation:
        """Begins an episode with a chat and the tools that it offers; returns what is shown."""
        self._task, self._answers, self._rest = task, 0, ()
        self._opening = opening
        self._tools = {tool.name: tool for tool in tools}
        offered = [f"[tools] {', '.join(self._tools)}"] if tools else []
        return self._shown(opening, *offered)

    def _results(self, words: Said) -> tuple[list[Message], bool]:
        """Returns the results of the calls of an answer, and whether all were carried out."""
        self._before_calls()
        if not words.readable:
            return [Message("user", _UNREADABLE)], False
        results = [self._result(call) for call in words.calls]
        most = self._result_characters
        messages = [
            Message("tool", cut(whole_characters(text), most), name=call.name)
            for call, (text, _) in zip(words.calls, results, strict=True)
        ]
        return messages, all(carried_out for _, carried_out in results)

    def _result(self, call: ToolCall) -> tuple[str, bool]:
        """Returns the result of a call, and whether it was carried out."""
        tool = self._tools.get(call.name)
        try:
            if tool is None:
                raise ToolError(f"there is no tool {call.name!r:.80}, but {', '.join(self._tools)}")
            return self._carried_out(tool, json.loads(call.arguments)), True
        except ToolError as fault:
            return f"error: {fault}", False

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
        return Observation("\n".join([lines(new), *more]), request=request)

    def _request_id(self) -> str:
        said_so_far = repr((self._opening, self._rest, self._answers))
        return hashlib.sha256(said_so_far.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def cut(text: str, most: int) -> str:
    """Returns at most this many characters of a text, and a line that says so if there are more."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[cut: the result has {len(text):,} characters, only {most:,} are shown]"


def shown_action(words: Said) -> str:
    """Returns the calls of an answer, or else its text, as a step's action."""
    calls = "; ".join(f"{call.name}({call.arguments})" for call in words.calls)
    text = calls or " ".join(words.content.split())
    return text if len(text) <= _ACTION_CHARACTERS else f"{text[:_ACTION_CHARACTERS]} ..."


def lines(messages: Sequence[Message]) -> str:
    """Returns messages as an observation; user messages get no heading."""
    return "\n".join(
        message.content if message.role == "user" else f"[{message.role}] {message.content}"
        for message in messages
    )
