"""Tools and calls of the Responses API: functions, custom tools, whose input is a text, and
namespaces of both. The policy is offered all of them as functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rlanything.records import ToolCall
from rlanything_agent.asked import Denial, misplaced
from rlanything_agent.dialects.base import Body, pieces
from rlanything_agent.fields import Tool, function_of, only
from rlanything_agent.turns import TurnReader, joined, text_in

_FIELDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "function": frozenset({"type", "name", "description", "parameters"}),
        "custom": frozenset({"type", "name", "description", "format"}),
        "namespace": frozenset({"type", "name", "description", "tools"}),
    }
)
"""Fields of tools that are read, by their type."""
_LEFT_OUT = frozenset({"web_search", "tool_search"})
"""Types of tools that coding agents always offer; the policy is not told of them."""
_INPUT = "input"
"""Argument of the function that a custom tool is to the policy."""
_TEXT_SCHEMA = MappingProxyType(
    {"type": "object", "properties": {_INPUT: {"type": "string"}}, "required": [_INPUT]}
)
CALL_FORM = (
    "a function_call needs a name and arguments that are a JSON object as text, a custom_tool_call "
    "a name and an input that is a text"
)


@dataclass(frozen=True, slots=True)
class OwnTool:
    """A tool in the program's own words."""

    name: str
    namespace: str = ""
    custom: bool = False


@dataclass(slots=True)
class ToolReader:
    """Reads tools, wherever a request lists them."""

    reader: TurnReader
    functions: list[Tool] = field(default_factory=list)
    """The tools as the policy is offered them."""
    own: dict[str, OwnTool] = field(default_factory=dict)
    """The tools by the names of their functions."""

    def add(self, place: str, tools: Any, namespace: str = "", about: str = "") -> None:
        """Adds tools. `about`: description of their namespace."""
        if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
            raise misplaced(place, "it must be a list of functions, each with a name")
        for i, tool in enumerate(tools):
            self._add(f"{place}[{i}]", tool, namespace, about)

    def _add(self, place: str, tool: Tool, namespace: str, about: str) -> None:
        kind = tool.get("type")
        if not isinstance(kind, str):
            raise misplaced(place, "the type of a tool must be a text")
        if kind in _LEFT_OUT:
            self.reader.ignore("tools", [kind])
            return
        if kind not in _FIELDS or (namespace and kind == "namespace"):
            raise misplaced(place, f"tools of type {kind!r:.80} are not supported: leave it out")
        if not (name := text_in(place, tool, "name")):
            raise misplaced(place, "a tool must have a name")
        said = {name: value for name, value in tool.items() if value is not False}
        self.reader.unread("tools", said, _FIELDS[kind])
        about = joined((about, text_in(place, tool, "description")))
        if kind == "namespace":
            self.add(f"{place}.tools", tool.get("tools"), name, about)
            return
        function = function_of(tool, "parameters")
        if kind == "custom":
            about = joined((about, self._grammar(place, tool.get("format"))))
            function = {**function, "parameters": dict(_TEXT_SCHEMA)}
        shown = function_name(namespace, name)
        if shown in self.own:
            raise misplaced(place, f"another tool is called {shown!r:.80} too: rename one")
        self.own[shown] = OwnTool(name, namespace, kind == "custom")
        described = {"description": about} if about else {}
        self.functions.append({**function, "name": shown, **described})

    def _grammar(self, place: str, value: Any) -> str:
        """Returns the format of a custom tool's input in words; "" for any text. Nothing enforces
        it."""
        match value:
            case None | {"type": "text"}:
                return ""
            case {"type": "grammar", "syntax": str(syntax), "definition": str(definition)}:
                self.reader.ignore("tools", ["format"])
                return f"The input follows this {syntax} grammar:\n{definition}"
            case _:
                raise misplaced(place, "format must be a text or a grammar with its definition")

    def chosen(self, choice: Any) -> tuple[Tool, ...]:
        """Returns the functions among which a `tool_choice` lets the policy choose."""
        if isinstance(choice, Mapping) and choice.get("type") in ("function", "custom"):
            return tuple(only(self.functions, choice.get("name"), self.reader.ignored))
        if choice == "none":
            return ()
        if choice == "required":
            self.reader.ignored.add("tool_choice")
        elif choice != "auto":
            raise Denial("tool_choice must be auto, none, required or a function", "tool_choice")
        return tuple(self.functions)


def function_name(namespace: str, name: str) -> str:
    """Returns the name under which the policy is offered a tool."""
    return f"{namespace}__{name}" if namespace else name


def read_call(reader: TurnReader, place: str, item: Mapping[str, Any]) -> ToolCall:
    """Returns the call of an item."""
    name, arguments = item.get("name"), item.get("arguments", 0)
    if item["type"] == "custom_tool_call":
        given = item.get("input")
        arguments = {_INPUT: given} if isinstance(given, str) else 0
    namespace = text_in(place, item, "namespace")
    shown = function_name(namespace, name) if isinstance(name, str) else name
    return reader.call(place, shown, arguments, CALL_FORM)


def call_items(calls: Sequence[ToolCall], own: Mapping[str, OwnTool], answer: int) -> list[Body]:
    """Returns the items of an answer's calls. `answer`: its number."""
    items: list[Body] = []
    for i, call in enumerate(calls):
        tool = own.get(call.name) or OwnTool(call.name)
        kind = "custom_tool_call" if tool.custom else "function_call"
        item = {"type": kind, "call_id": f"call_{answer}_{i}", "name": tool.name}
        item |= {"namespace": tool.namespace} if tool.namespace else {}
        if tool.custom:
            item |= {"id": f"ctc_{answer}_{i}", "input": _input(call.arguments)}
        else:
            item |= {"id": f"fc_{answer}_{i}", "arguments": call.arguments}
        items.append({**item, "status": "completed"})
    return items


def _input(arguments: str) -> str:
    """Returns the input of a custom tool. If a call has other arguments than that, the program gets
    all of them, to complain about."""
    match json.loads(arguments):
        case {"input": str(said), **rest} if not rest:
            return said
        case _:
            return arguments


def call_events(item: Body) -> list[Body]:
    """Returns the events that complete the item of a call."""
    place = {"item_id": item["id"]}
    if item["type"] == "custom_tool_call":
        kind, said, named = "response.custom_tool_call_input", {"input": item["input"]}, {}
    else:
        kind, said = "response.function_call_arguments", {"arguments": item["arguments"]}
        named = {"name": item["name"]}
    [text] = said.values()
    return [
        *({"type": f"{kind}.delta", **place, "delta": piece} for piece in pieces(text)),
        {"type": f"{kind}.done", **place, **said, **named},
    ]
