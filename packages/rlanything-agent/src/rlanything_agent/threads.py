"""The conversations of one episode: which earlier step a request continues, and what is new in
it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlanything.domains.calls import Said, parse_calls
from rlanything.records import Completion, Message, Messages
from rlanything_agent.asked import Asked

NOTHING_NEW, ENDED = "(asked again)", "The agent has ended."
_ACTION_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a request among the earlier ones."""

    follows: int | None
    """Step that it continues; None if it starts a new conversation."""
    thread: int
    new: Messages
    """The messages that no earlier request contained."""


@dataclass(slots=True)
class Threads:
    """The steps so far, each with the chat at its end."""

    _chats: list[Messages] = field(default_factory=list)
    """Chat at the end of each step: request and answer."""
    _latest: list[int] = field(default_factory=list)
    """Latest step of each thread."""

    def place(self, messages: Messages) -> Place:
        """Returns where a request belongs. A chat that repeats the latest chat of a thread, with
        its answer, continues that thread; any other chat starts a new one."""
        for thread, step in reversed([*enumerate(self._latest)]):
            chat = self._chats[step]
            if len(messages) > len(chat) and messages[: len(chat)] == chat:
                return Place(step, thread, messages[len(chat) :])
        known = max((common_length(chat, messages) for chat in self._chats), default=0)
        return Place(None, len(self._latest), messages[known:])

    def add(self, messages: Messages, place: Place, said: Said) -> None:
        """Adds a step."""
        if place.thread == len(self._latest):
            self._latest.append(0)
        self._latest[place.thread] = len(self._chats)
        self._chats.append((*messages, Message("assistant", said.content, calls=said.calls)))


def action_of(said: Said) -> str:
    """Returns an answer as the action of a step: its calls, or else its text, shortened."""
    calls = "; ".join(f"{call.name}({call.arguments})" for call in said.calls)
    return calls or textwrap.shorten(said.content, _ACTION_CHARACTERS, placeholder=" ...")


def said_in(asked: Asked, completion: Completion) -> Said:
    """Returns an answer in the form that the client gets."""
    if not asked.tools:
        return Said(completion.answer)
    said = parse_calls(completion.answer, asked.tools, completion.call_family)
    return Said(said.content, said.calls[:1], said.readable) if asked.one_call else said


def shown(messages: Messages, tools: Sequence[str] = ()) -> str:
    """Returns messages as an observation, with the names of tools; user messages get no heading."""
    text = "\n".join(_line(message) for message in messages) or NOTHING_NEW
    return f"{text}\n[tools] {', '.join(tools)}" if tools else text


def _line(message: Message) -> str:
    calls = [f"{call.name}({call.arguments})" for call in message.calls]
    text = " ".join(filter(None, [message.content, *calls]))
    return text if message.role == "user" else f"[{message.role}] {text}"


def common_length(one: Sequence[object], other: Sequence[object]) -> int:
    """Returns the length of the common beginning."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
