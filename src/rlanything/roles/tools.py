"""Functions that a model may call: as its chat template takes them, or said in words."""

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
"""The form of the Hermes models, which Qwen's templates have too."""

Tools = Sequence[Mapping[str, Any]]
"""Functions with `name`, `description` and `parameters` (a JSON schema)."""


def tools_in_words(messages: Messages, tools: Tools) -> Messages:
    """Returns a chat without tools, calls and their results, all of which are said in its texts."""
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
        f'<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}\n'
        "</tool_call>"
        for call in message.calls
    )
    words = "\n".join(filter(None, (message.content, calls)))
    return Message(message.role, words, message.images)


def template_tools(tools: Tools, harmless: Callable[[str], str]) -> list[dict[str, Any]] | None:
    """Returns tools as chat templates take them, every text made `harmless`; None for none."""
    return [_everywhere(_function(tool), harmless) for tool in tools] or None


def template_calls(
    calls: Sequence[ToolCall], harmless: Callable[[str], str]
) -> list[dict[str, Any]]:
    """Returns calls as chat templates take them: arguments are no text there."""
    return [
        {
            "type": "function",
            "function": {
                "name": harmless(call.name),
                "arguments": _everywhere(json.loads(call.arguments), harmless),
            },
        }
        for call in calls
    ]


def shows_tools(rendered: str) -> bool:
    """Whether a rendering of the probe has all of it."""
    wanted = ("Tells what a word means.", '"zeugma"', "a figure of speech")
    return all(words in rendered for words in wanted)


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": dict(tool)}


def _everywhere(value: Any, change: Callable[[str], str]) -> Any:
    """Returns JSON data with all of its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_everywhere(member, change) for member in value]
    if isinstance(value, Mapping):
        return {change(name): _everywhere(member, change) for name, member in value.items()}
    return value


PROBE_TOOL = {
    "name": "look_up",
    "description": "Tells what a word means.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
}
PROBE_TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": "What is a zeugma?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": template_calls((ToolCall("look_up", '{"word": "zeugma"}'),), str),
    },
    {"role": "tool", "name": "look_up", "content": "a figure of speech"},
]
"""A chat by which it shows whether a template has a place for tools, calls and results."""
