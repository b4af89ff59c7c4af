"""Calls of functions in what a model wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from rlanything.records import ToolCall
from rlanything.surrogates import whole_characters

_MARKED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FENCED = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, its calls apart from the text around them."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    readable: bool = True
    """Whether every call that was begun could be read."""


def parse_calls(text: str, names: Collection[str]) -> Said:
    """Returns the calls in an answer to a request that offered functions of these names: marked as
    the Hermes and Qwen models do, or as JSON objects and nothing else. The whole text stays content
    where one cannot be read."""
    marked = _MARKED.findall(text)
    if marked:
        calls = [_call(block) for block in marked]
        if None in calls:
            return Said(text, (), readable=False)
        content = _MARKED.sub("", text).strip()
        return Said(content, tuple(call for call in calls if call is not None))
    bare = text.strip()
    fenced = _FENCED.match(bare)
    call = _call(fenced[1] if fenced else bare)
    if call is None or call.name not in names:
        return Said(text)
    return Said("", (call,))


def _call(text: str) -> ToolCall | None:
    """Returns the call that a JSON object is; None for anything else."""
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        return None
    given = said.get("arguments", said.get("parameters", {}))
    if isinstance(given, str):
        return call_of(said["name"], given)
    return _written(said["name"], given)


def call_of(name: str, arguments: str) -> ToolCall | None:
    """Returns a call with its arguments written as we write them; None if they are no JSON
    object."""
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return _written(name, given)


def _written(name: str, given: Any) -> ToolCall | None:
    if not isinstance(given, dict):
        return None
    try:
        arguments = json.dumps(given, ensure_ascii=False)
    except RecursionError:
        return None
    # An escape may stand for half a character, which nobody can be sent.
    return ToolCall(whole_characters(name), whole_characters(arguments))
