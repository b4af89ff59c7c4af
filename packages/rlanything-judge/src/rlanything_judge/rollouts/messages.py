"""Steps of a rollout from its messages, with one rule for texts, tool calls and reasoning.

Every format is read as a `ChatRollout` first. A message of the model is a step; what was shown
since the answer before it is its observation, what follows is its next observation.
"""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rlanything.domains.thoughts import THOUGHT_KEYS, answer_start, bare_thought, in_think_marks

Line: TypeAlias = Mapping[str, Any]
"""A JSON object: a record, or a message in it."""
Turn: TypeAlias = tuple[str, str, str]
"""Observation, response and next observation."""
_ASSISTANT = ("assistant", "gpt", "chatgpt", "bing", "ai", "function_call")
_OTHERS = (
    *("system", "developer", "user", "human", "tool", "function", "observation"),
    *("ipython", "environment", "exit"),
)


class FormatError(ValueError):
    """A line does not fit the format; the message says what is missing."""

    def __init__(self, fault: str, remedy: str = "check --format") -> None:
        super().__init__(fault)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class ChatRollout:
    """A rollout as messages, in the order in which they were shown or written."""

    messages: Sequence[Line]
    sampled: Sequence[bool] | None = None
    """Whether the judged model wrote each message; None: all of the assistant."""
    parents: Sequence[int | None] | None = None
    """Index of the message before each; None: the one above it."""
    instruction: str | None = None
    """The task in words; None: all that was shown before the first answer."""
    task: str | None = None
    """Name of the task, if no key of the record is that."""
    left_out: Mapping[str, int] | None = None
    """Counts of what the reader left out, by name."""


def said(message: Line) -> Line:
    """Returns a message with OpenAI's keys; ShareGPT names its role `from` and its text `value`."""
    if not isinstance(message, Mapping):
        raise FormatError(f"{reprlib.repr(message)} is not an object")
    named = "role" in message or "from" not in message
    role = message["role" if named else "from"]
    if role not in (*_ASSISTANT, *_OTHERS):
        raise FormatError(
            f"the role {reprlib.repr(role)} is unknown",
            "use system, user, assistant or tool",
        )
    if not named:
        message = {**message, "content": message["value"]}
    return {**message, "role": "assistant" if role in _ASSISTANT else role}


def missing(fault: Exception) -> str:
    """Returns what is wrong with a record, after reading it failed."""
    return f"{fault.args[0]!r} is missing" if isinstance(fault, KeyError) else f"{fault}"


def turns_of(chat: ChatRollout) -> tuple[list[Turn], Counter[str]]:
    """Returns the steps of a chat, and counts of what has no text, by type. Raises `FormatError`
    that names the message at fault."""
    messages, dropped = list[Line](), Counter(chat.left_out or {})
    for i, message in enumerate(chat.messages, start=1):
        try:
            messages.append(said(message))
            _text(messages[-1])
            dropped.update(_without_text(messages[-1]))
        except FormatError as error:
            raise FormatError(f"message {i}: {error}", error.remedy) from error
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as fault:
            raise FormatError(f"message {i}: {missing(fault)}") from fault
    sampled = chat.sampled
    if sampled is None:
        sampled = [message["role"] == "assistant" for message in messages]
    parents = [None, *range(len(messages) - 1)] if chat.parents is None else chat.parents
    return _turns(messages, sampled, parents), dropped


def _turns(
    messages: Sequence[Line], sampled: Sequence[bool], parents: Sequence[int | None]
) -> list[Turn]:
    """Returns a step for each message that the model wrote. `parents`: branches part where a
    conversation was cut or restarted."""
    # Per message: texts shown since the previous answer, and the index of that answer.
    shown: list[list[str]] = []
    answered: list[int | None] = []
    after: dict[int, list[str]] = {}
    followed: set[int] = set()
    said_at: dict[tuple[int | None, str], int] = {}
    twins: dict[int, int] = {}
    for i, (message, by_model, parent) in enumerate(
        zip(messages, sampled, parents[: len(messages)], strict=True)
    ):
        if parent is not None and not 0 <= parent < i:
            raise FormatError(f"message {i} comes after message {parent}")
        parent = twins.get(parent, parent) if parent is not None else None
        text = _text(message)
        if by_model:
            said_at.setdefault((parent, text), i)
        elif message["role"] == "assistant" and (parent, text) in said_at:
            # An answer that was sent back without its reasoning is the same answer.
            twins[i] = said_at[parent, text]
        if parent is None or sampled[parent]:
            before, answer = [], parent
        else:
            before, answer = shown[parent], answered[parent]
        shown.append(before if by_model else [*before, text])
        answered.append(answer)
        if answer is not None and answer not in followed and i not in twins:
            after[answer] = shown[i]
            if by_model:
                followed.add(answer)
    written = [i for i, by_model in enumerate(sampled) if by_model]
    if not written:
        raise FormatError("no message is the model's", "remove it, or check --format")
    return [(_joined(shown[i]), _whole(messages[i]), _joined(after.get(i, ()))) for i in written]


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts))


def _parts(message: Line) -> list[Line]:
    """Returns the content of a message as parts; litellm keeps Anthropic's thoughts apart."""
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return [*(message.get("thinking_blocks") or ()), *(content or ())]


def _spoken(message: Line) -> str:
    """Returns the text of a message's parts without those that are reasoning."""
    spoken = [_shown(part) for part in _parts(message) if not _thinks(part)]
    return "\n".join(filter(None, spoken)) or message.get("refusal") or ""


def _shown(part: Line) -> str:
    return f"[{part['type']}]" if _is_blank(part) else part.get("text") or part.get("refusal") or ""


def _is_blank(part: Line) -> bool:
    # A row of a table has every key of its column, most of them without a value.
    return part.get("text") is None and part.get("refusal") is None


def _without_text(message: Line) -> Iterator[str]:
    """Yields the types of parts that a judge cannot read."""
    for part in _parts(message):
        if _thinks(part):
            if not _thought(part):
                yield "hidden reasoning"
        elif _is_blank(part):
            yield part["type"]


def _whole(message: Line) -> str:
    """Returns a message's reasoning in `<think>` marks, wherever the message keeps it, then its
    text."""
    thoughts = [_thought(part) for part in _parts(message) if _thinks(part)]
    named = next((message[name] for name in THOUGHT_KEYS if isinstance(message.get(name), str)), "")
    spoken = _spoken(message)
    thoughts.append(bare_thought(spoken[: answer_start(spoken)]))
    thought = "\n".join(dict.fromkeys(filter(None, [named, *thoughts])))
    return in_think_marks(thought, _text(message))


def _text(message: Line) -> str:
    """Returns the text of a message and its calls of tools, without reasoning."""
    spoken = _spoken(message)
    if message["role"] == "assistant":
        spoken = spoken[answer_start(spoken) :]
    calls = [*(message.get("tool_calls") or ()), message.get("function_call")]
    return "\n".join(filter(None, [spoken, *map(_call, filter(None, calls))]))


def _thinks(part: Line) -> bool:
    return part.get("type") in ("thinking", "redacted_thinking", "reasoning")


def _thought(part: Line) -> str:
    written = part.get("thinking", part.get("reasoning", part.get("text")))
    if isinstance(written, str):
        return written
    return "\n".join(piece["text"] for piece in written or ())


def _call(call: Line | str) -> str:
    """Returns a call of a tool; verifiers saves each as a text of JSON."""
    given = json.loads(call) if isinstance(call, str) else call
    function = given.get("function", given)
    arguments = function["arguments"]
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f"{function['name']}({written})"
