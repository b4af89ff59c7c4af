"""Rows of NeMo Gym's data sets, and rollouts as its servers verify them.

    {"responses_create_params": {"input": "What is 2 + 2?", "tools": [...]}, "expected_answer": "4"}

A row is a request to OpenAI's Responses, with further keys that only the server reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlanything.domains.calls import call_of
from rlanything.records import Message, Messages

OWN_PATHS = ("verify", "seed_session", "aggregate_metrics", "reverify_mode")
"""Paths of a server that are no tools."""
_LEFT_TO_THE_RECIPE = frozenset(
    ("model", "temperature", "top_p", "max_output_tokens", "reasoning", "store", "stream")
)
"""Keys that say how a model is sampled, which the recipe decides."""
_READ = frozenset(("input", "instructions", "tools", "tool_choice", "parallel_tool_calls"))
_NOTHING = (None, "", [], {})
_ROLES = {"user": "user", "system": "system", "developer": "system", "assistant": "assistant"}


class BadRow(ValueError):
    """A row that cannot be played; the message names the key."""


def opening(row: Mapping[str, Any]) -> Messages:
    """Returns the chat of a row. Raises `BadRow`."""
    params = row["responses_create_params"]
    given = params.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise BadRow("responses_create_params.input must be a text or a list of items")
    messages = [_message(number, item) for number, item in enumerate(items)]
    instructions = params.get("instructions")
    first = [Message("system", instructions)] if isinstance(instructions, str) else []
    return (*first, *messages)


def functions(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the tools of a row, each with `name`, `description` and `parameters`. Raises
    `BadRow`."""
    params = row["responses_create_params"]
    if params.get("tool_choice") == "none":
        return []
    offered: list[dict[str, Any]] = []
    for number, tool in enumerate(params.get("tools") or []):
        place = f"responses_create_params.tools.{number}"
        if not isinstance(tool, Mapping) or tool.get("type") != "function":
            raise BadRow(f"{place} is no function; servers offer no other tools")
        name, parameters = tool.get("name"), tool.get("parameters") or {"type": "object"}
        if not isinstance(name, str) or not name or name in OWN_PATHS:
            raise BadRow(f"{place}.name is {name!r:.80}, no name of a tool")
        if not isinstance(parameters, Mapping):
            raise BadRow(f"{place}.parameters must be a JSON schema")
        description = str(tool.get("description") or "")
        offered.append({"name": name, "description": description, "parameters": dict(parameters)})
    if len({each["name"] for each in offered}) < len(offered):
        raise BadRow("responses_create_params.tools has two tools of one name")
    return offered


def check_row(row: Any) -> None:
    """Raises `BadRow` for a row that cannot be played as it asks."""
    params = row.get("responses_create_params") if isinstance(row, Mapping) else None
    if not isinstance(params, Mapping):
        raise BadRow("a row is an object with responses_create_params")
    for key, value in params.items():
        if key not in _READ | _LEFT_TO_THE_RECIPE and value not in _NOTHING:
            raise BadRow(f"responses_create_params.{key} is not supported: remove it")
    if params.get("tool_choice") not in (None, "auto", "none"):
        raise BadRow("responses_create_params.tool_choice must be auto or none")
    opening(row)
    functions(row)


def response_to_verify(row: Mapping[str, Any], said: Messages, name: str) -> dict[str, Any]:
    """Returns what the policy said and its calls brought as a response of OpenAI's Responses."""
    params = row["responses_create_params"]
    return {
        "id": f"resp_{name}",
        "created_at": 0.0,
        "model": "policy",
        "object": "response",
        "output": _items(said),
        "parallel_tool_calls": params.get("parallel_tool_calls") is not False,
        "tool_choice": params.get("tool_choice") or "auto",
        "tools": params.get("tools") or [],
    }


def _items(messages: Messages) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        if message.role == "tool":
            call_id = open_calls.pop(0)
            items.append(
                {"type": "function_call_output", "call_id": call_id, "output": message.content}
            )
            continue
        if message.thought:
            summary = [{"type": "summary_text", "text": message.thought}]
            items.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary})
        if message.content or not message.calls:
            items.append(_spoken(message, number))
        open_calls = [f"call_{number}_{place}" for place in range(len(message.calls))]
        items += [
            {
                "type": "function_call",
                "id": f"fc_{number}_{place}",
                "call_id": open_calls[place],
                "name": call.name,
                "arguments": call.arguments,
                "status": "completed",
            }
            for place, call in enumerate(message.calls)
        ]
    return items


def _spoken(message: Message, number: int) -> dict[str, Any]:
    if message.role != "assistant":
        return {"type": "message", "role": message.role, "content": message.content}
    content = [{"type": "output_text", "text": message.content, "annotations": []}]
    return {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "content": content,
        "status": "completed",
    }


def _message(number: int, item: Any) -> Message:
    place = f"responses_create_params.input.{number}"
    if not isinstance(item, Mapping):
        raise BadRow(f"{place} is no item")
    match item.get("type", "message"):
        case "message":
            role = _ROLES.get(str(item.get("role")))
            if role is None:
                raise BadRow(f"{place}.role is {item.get('role')!r:.80}")
            return Message(role, _text(place, item.get("content")))  # pyright: ignore[reportArgumentType]
        case "function_call":
            call = call_of(str(item.get("name")), str(item.get("arguments") or ""))
            if call is None:
                raise BadRow(f"{place}.arguments is no JSON object")
            return Message("assistant", "", calls=(call,))
        case "function_call_output":
            return Message("tool", _text(place, item.get("output")))
        case kind:
            raise BadRow(f"{place} is of the type {kind!r:.80}, which is not supported")


def _text(place: str, content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    parts: Sequence[Any] = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise BadRow(f"{place} has parts that are no text; images are not supported")
    return "".join(map(str, texts))
