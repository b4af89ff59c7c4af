"""Messages and answers as the journal writes them: nothing that an earlier line has is repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlanything.domains.calls import Said
from rlanything.records import Completion, Message, Messages, ToolCall
from rlanything_agent.threads import common_length

START = ""
"""Digest of a chat without messages."""


def digest(before: str, message: Message) -> str:
    """Returns the digest of a chat that ends with a message, from the digest of the chat before it.
    Thoughts have no part in it: most clients send answers back without them."""
    parts = (message.role, message.content, message.images, message.calls, message.name)
    text = f"{before}\n{parts!r}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def digests(messages: Iterable[Message], before: str = START) -> list[str]:
    """Returns the digest of a chat after each message."""
    result: list[str] = []
    for message in messages:
        before = digest(before, message)
        result.append(before)
    return result


def message_line(message: Message) -> dict[str, Any]:
    line: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        line["calls"] = _call_lines(message.calls)
    optional = {"name": message.name, "thought": message.thought}
    return line | {name: value for name, value in optional.items() if value}


def message_of(line: Mapping[str, Any]) -> Message:
    return Message(
        line["role"],
        line["content"],
        calls=_calls(line.get("calls", ())),
        name=line.get("name", ""),
        thought=line.get("thought", ""),
    )


def messages_of(lines: Iterable[Mapping[str, Any]]) -> Messages:
    return tuple(map(message_of, lines))


def answer_line(said: Said, completion: Completion, before: Completion | None) -> dict[str, Any]:
    """Returns an answer. `before`: the episode's last completion, whose tokens most prompts
    repeat."""
    known = common_length(() if before is None else before.tokens, completion.prompt_ids)
    return {
        "content": said.content,
        "calls": _call_lines(said.calls),
        "readable": said.readable,
        "text": completion.text,
        "answer_at": completion.answer_at,
        "stop_reason": completion.stop_reason,
        "unread": completion.unread,
        "call_family": completion.call_family,
        "known": known,
        "prompt_ids": completion.prompt_ids[known:],
        "token_ids": completion.token_ids,
        "logprobs": completion.logprobs,
        "allowed": completion.allowed,
    }


def answer_of(line: Mapping[str, Any], before: Completion | None) -> tuple[Said, Completion]:
    """Returns the answer of `answer_line`, bit for bit."""
    known = () if before is None else before.tokens[: line["known"]]
    completion = Completion(
        (*known, *line["prompt_ids"]),
        tuple(line["token_ids"]),
        tuple(line["logprobs"]),
        tuple(map(tuple, line["allowed"])),
        line["stop_reason"],
        line["text"],
        line["answer_at"],
        tuple(line["unread"]),
        line["call_family"],
    )
    return Said(line["content"], _calls(line["calls"]), line["readable"]), completion


def _call_lines(calls: Sequence[ToolCall]) -> list[list[str]]:
    return [[call.name, call.arguments] for call in calls]


def _calls(lines: Iterable[Sequence[str]]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(name, arguments) for name, arguments in lines)
