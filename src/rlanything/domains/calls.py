"""Function calls in the text of a model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from itertools import chain
from typing import Any

from rlanything.records import ToolCall
from rlanything.strict_json import read_json
from rlanything.surrogates import whole_characters

HERMES = "hermes"
"""The family whose format is used in words; this file reads it."""
_MARKED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FENCED = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)
_ELEMENT = re.compile(r"\s*<function=([^<>\n]+)>(.*)</function>\s*", re.DOTALL)
_OPENING = re.compile(r"<function=([^<>\n]+)>")
_BARE_ELEMENT = re.compile(r"<function=([^<>\n]+)>.*?</function>", re.DOTALL)
# A value ends before another parameter or at the end: its text may mention parameters itself.
_PARAMETER = re.compile(
    r"\s*<parameter=([^<>\n]+)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=|\Z))", re.DOTALL
)
_TRUTH = {"true": True, "false": False}
_NOTHING = ("null", "none")


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, with its calls separated from the text around them."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    readable: bool = True
    """Whether every call that was begun could be read."""


def parse_calls(text: str, tools: Collection[Mapping[str, Any]], family: str = HERMES) -> Said:
    """Returns the calls in an answer to a request that offered these functions, in the format of a
    family of models. If one cannot be read, the whole text stays content.

    `tools`: each with its `name` and `parameters`, a JSON schema for reading the values of
    elements."""
    schemas = {str(tool["name"]): tool.get("parameters") for tool in tools}
    return _families()[family](text, schemas)


def family_of(text: str, tools: Collection[Any], calls: tuple[ToolCall, ...]) -> str | None:
    """Returns the family in whose format a text contains exactly these calls; None: none does."""
    read = (each for each in _families() if parse_calls(text, tools, each).calls == calls)
    return next(read, None)


@cache
def _families() -> dict[str, Callable[[str, Mapping[str, Any]], Said]]:
    """Returns parsers by family; packages add mappings of them (`rlanything.call_formats`)."""
    added = (each.load().items() for each in entry_points(group="rlanything.call_formats"))
    return dict((*chain.from_iterable(added), (HERMES, _hermes)))


def _hermes(text: str, schemas: Mapping[str, Any]) -> Said:
    """Reads calls marked as by the Hermes and Qwen models, around JSON or around elements, and JSON
    objects or elements without other text."""
    marked = _MARKED.findall(text)
    if marked:
        calls = [_call(block, schemas) for block in marked]
        content = _MARKED.sub("", text).strip()
        # A mark is left over if a value contained a whole call.
        if None in calls or "</parameter>" in content:
            return Said(text, (), readable=False)
        return Said(content, tuple(call for call in calls if call is not None))
    bare = text.strip()
    fenced = _FENCED.match(bare)
    call = _json_call(fenced[1] if fenced else bare)
    if call is not None and call.name in schemas:
        return Said("", (call,))
    if any(name in schemas for name in _OPENING.findall(text)):
        # Search up to the last end mark: after it, every start mark would be searched to the end of
        # the text.
        head, end, rest = text.rpartition("</function>")
        blocks = [match for match in _BARE_ELEMENT.finditer(head + end) if match[1] in schemas]
        calls = [_element_call(match[0], schemas) for match in blocks]
        if None in calls or not calls or any(name in schemas for name in _OPENING.findall(rest)):
            return Said(text, (), readable=False)
        content = _BARE_ELEMENT.sub(lambda m: "" if m[1] in schemas else m[0], head + end) + rest
        return Said(content.strip(), tuple(call for call in calls if call is not None))
    return Said(text)


def call_of(name: str, arguments: str) -> ToolCall | None:
    """Returns a call with normalized arguments; None if they are not a JSON object."""
    try:
        given = read_json(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return written_call(name, given)


def _call(text: str, schemas: Mapping[str, Any]) -> ToolCall | None:
    return _json_call(text) or _element_call(text, schemas)


def _json_call(text: str) -> ToolCall | None:
    """Returns the call in a JSON object; None for anything else."""
    try:
        said: Any = read_json(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        return None
    given = said.get("arguments", said.get("parameters", {}))
    if isinstance(given, str):
        return call_of(said["name"], given)
    return written_call(said["name"], given)


def _element_call(text: str, schemas: Mapping[str, Any]) -> ToolCall | None:
    """Returns the call in an element with one element per parameter, in Qwen3-Coder's format; None
    for anything else."""
    function = _ELEMENT.fullmatch(text)
    if function is None:
        return None
    name, inner = function.groups()
    schema = schemas.get(name)
    known = schema.get("properties") if isinstance(schema, Mapping) else None
    given: dict[str, Any] = {}
    place = 0
    while match := _PARAMETER.match(inner, place):
        parameter, value = match.groups()
        if parameter in given:
            return None
        kind = known.get(parameter) if isinstance(known, Mapping) else None
        given[parameter] = typed_value(value, kind)
        place = match.end()
    return None if inner[place:].strip() else written_call(name, given)


def _types(schema: Any) -> set[str]:
    """Returns the types that a schema admits; empty if it names none."""
    if not isinstance(schema, Mapping):
        return set()
    named = schema.get("type")
    types = {str(each) for each in (named if isinstance(named, list) else [named]) if each}
    for choice in ("anyOf", "oneOf", "allOf"):
        members = schema.get(choice)
        for member in members if isinstance(members, list) else ():
            types |= _types(member)
    values = schema.get("enum")
    if not types and isinstance(values, list) and all(isinstance(value, str) for value in values):
        return {"string"}
    return types


def typed_value(text: str, schema: Any) -> Any:
    """Returns a parameter's value in a type of its schema if possible, else its text."""
    types = _types(schema)
    word = text.strip().lower()
    if word in _NOTHING and "null" in types:
        return None
    if word in _TRUTH and "boolean" in types and "string" not in types:
        return _TRUTH[word]
    # Strings are unquoted: without a type, only an object or a list is not a string.
    if "string" in types or (not types and word[:1] not in ("{", "[")):
        return text
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return text


def written_call(name: str, given: Any) -> ToolCall | None:
    """Returns a call with these arguments; None if they are not a JSON object."""
    if given is None:
        given = {}
    if not isinstance(given, dict):
        return None
    try:
        arguments = json.dumps(given, ensure_ascii=False)
    except RecursionError:
        return None
    # An escape may encode half a character, which cannot be sent.
    return ToolCall(whole_characters(name), whole_characters(arguments))
