"""Functions that a model may call, for its chat template or as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlanything.records import Message, Messages, ToolCall

_WORDS = """# Tools

You may call these functions; each line describes one of them as JSON:
<tools>
{tools}
</tools>

To call one, answer with its name and its arguments as a JSON object within these marks:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>"""
"""The format of the Hermes models, which Qwen's templates use too."""
CALL_MARKS = frozenset(
    f"<{slash}{name}>"
    for slash in ("", "/")
    for name in ("tool_call", "tool_response", "tools", "function", "parameter")
)
"""Marks of calls and results within a turn."""

Tools = Sequence[Mapping[str, Any]]
"""Functions with `name`, `description` and `parameters` (a JSON schema)."""


def tools_in_words(messages: Messages, tools: Tools) -> Messages:
    """Returns a chat whose tools, calls and results are written into its texts."""
    chat = [_in_words(message) for message in messages]
    if tools:
        lines = "\n".join(json.dumps(_function(tool), ensure_ascii=False) for tool in tools)
        words = _WORDS.format(tools=lines)
        if chat and chat[0].role == "system":
            chat[0] = replace(chat[0], content=f"{chat[0].content}\n\n{words}")
        else:
            chat.insert(0, Message("system", words))
    return tuple(chat)


def _in_words(message: Message) -> Message:
    if message.role == "tool":
        words = f"<tool_response>\n{message.content}\n</tool_response>"
        return Message("user", words, message.images)
    calls = "\n".join(
        f'<tool_call>\n{{"name": {json.dumps(call.name, ensure_ascii=False)}, '
        f'"arguments": {call.arguments}}}\n</tool_call>'
        for call in message.calls
    )
    words = "\n".join(filter(None, (message.content, calls)))
    return replace(message, content=words, calls=())


def template_tools(tools: Tools, harmless: Callable[[str], str]) -> list[dict[str, Any]] | None:
    """Returns tools in the format of chat templates, with `harmless` applied to every text; None:
    there are none."""
    return [everywhere(_function(tool), harmless) for tool in tools] or None


def template_call(
    call: ToolCall, number: int, harmless: Callable[[str], str], named: bool = False
) -> dict[str, Any]:
    """Returns a call in the format of chat templates, with parsed arguments. `number`: its index
    among the calls of the chat."""
    return {
        "id": harmless(call_id(number, call.name, named)),
        "type": "function",
        "function": {
            "name": harmless(call.name),
            "arguments": everywhere(json.loads(call.arguments), harmless),
        },
    }


def call_id(number: int, name: str, named: bool) -> str:
    """Returns the id of a call in a rendered chat: nine letters and digits, as Mistral's templates
    demand, or Kimi's with its name. It replaces a program's own, so rendering is repeatable."""
    return f"functions.{name}:{number}" if named else f"call{number:05d}"


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": dict(tool)}


def everywhere(value: Any, change: Callable[[str], str]) -> Any:
    """Returns JSON data with `change` applied to all texts."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [everywhere(member, change) for member in value]
    if isinstance(value, Mapping):
        return {change(name): everywhere(member, change) for name, member in value.items()}
    return value


PROBE_TOOL: Mapping[str, Any] = {
    "name": "look_up",
    "description": "Tells what a word means.",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string"}, "most": {"type": "integer"}},
        "required": ["word"],
    },
}
PROBE_CALLS = tuple(
    ToolCall("look_up", json.dumps({"most": most, "word": word}))
    for word, most in (("zeugma", 3), ("litotes", 4))
)
_PROBE_RESULTS = ("a figure of speech", "an understatement")


def probe(calls: int, text: str = "") -> Messages:
    """Returns a chat that tests whether a template renders calls, `text` before them, and their
    results."""
    return (
        Message("user", "Which words are these?"),
        Message("assistant", text, calls=PROBE_CALLS[:calls]),
        *(Message("tool", result) for result in _PROBE_RESULTS[:calls]),
    )


def shows_tools(rendered: str, calls: int) -> bool:
    """Whether a rendering of the probe describes the function and has the results in order."""
    places = [rendered.find(result) for result in _PROBE_RESULTS[:calls]]
    described = str(PROBE_TOOL["description"]) in rendered
    return described and min(places) >= 0 and places == sorted(places)
