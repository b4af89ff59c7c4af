"""A tool, and a chat in which it was called."""

from __future__ import annotations

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


def asked(*calls: ToolCall, text: str = "") -> tuple[Message, ...]:
    """A request, an answer with these calls, and their results."""
    results = [Message("tool", f"result {i}") for i in range(len(calls))]
    return (Message("user", "Go."), Message("assistant", text, calls=calls), *results)
