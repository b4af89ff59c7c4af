"""A tool, calls as a policy writes them, and a chat in which the tool was called."""

from __future__ import annotations

import json
from typing import Any

from rlanything.records import Message, ToolCall

SEARCH: dict[str, Any] = {
    "name": "search",
    "description": "Looks up.",
    "parameters": {
        "type": "object",
        "properties": {
            "word": {"type": "string"},
            "most": {"type": "integer"},
            "exact": {"type": "boolean"},
            "tags": {"type": "array"},
            "more": {"type": "object"},
        },
    },
}


def call(tool: str, /, **arguments: Any) -> str:
    """An answer that calls a tool, in the format of Hermes."""
    written = json.dumps({"name": tool, "arguments": arguments})
    return f"<tool_call>\n{written}\n</tool_call>"


def asked(*calls: ToolCall, text: str = "") -> tuple[Message, ...]:
    """A request, an answer with these calls, and their results."""
    results = [Message("tool", f"result {i}") for i in range(len(calls))]
    return (Message("user", "Go."), Message("assistant", text, calls=calls), *results)
