"""Function calls in the text of a model, in its family's format (`call_formats.toml`)."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rlanything.records import ToolCall
from rlanything.strict_json import read_json, read_json_at
from rlanything.surrogates import whole_characters

HERMES = "hermes"
"""The family of chat templates without calls of their own."""
_SPACE = re.compile(r"\s*")
# Each alternative is linear: reading stops where none matches. A Python string ends at a quote
# before a separator, because some templates escape no quotes.
_LOOSE = re.compile(
    r"""<\|"\|>(?P<marked>.*?)<\|"\|>|<escape>(?P<escape>.*?)<escape>"""
    r"""|(?P<q>["'])(?P<quoted>(?:\\.|(?!(?P=q))[^\\]|(?P=q)(?!\s*[\]),:}]))*+)(?P=q)"""
    r"""|(?P<word>(?:[Tt]rue|[Ff]alse|None|null)\b(?!\s*[=:]))|(?P<function>[^\W\d][\w.-]*)\("""
    r"""|(?P<key>[^\W\d][^<>"'=:,(){}[\]]*)[=:]|-?\d[\d.eE+-]*|[\s,]+|[\[\]{})]""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"""\\x([0-9a-fA-F]{2})|\\?(["'])|([\0-\x1f])|\\.""", re.DOTALL)
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
    """Returns the calls in an answer to a request that offered these functions. If one cannot be
    read, the whole text stays content.

    `tools`: each with its `name` and `parameters`, a JSON schema for reading values that are not
    JSON. `family`: a name in `call_formats.toml`."""
    schemas = {str(tool["name"]): tool.get("parameters") for tool in tools}
    formats = _families()[family]
    marks = "|".join({each.begins: None for each in formats if each.begins})
    content, calls, place, at = list[str](), list[ToolCall](), 0, 0
    while marks and (mark := _compiled(marks).search(text, at)):
        at = mark.end()
        begun = [each for each in formats if each.begun_by(mark[0], text, at, schemas)]
        if not begun:
            continue
        read = next(filter(None, (each.read(text, at, schemas) for each in begun)), None)
        if read is None:
            return Said(text, (), readable=False)
        content.append(text[place : mark.start()])
        calls += read[0]
        place = at = read[1]
    if calls:
        return Said("".join((*content, text[place:])).strip(), tuple(calls))
    for whole in (each for each in formats if not each.begins):
        read = whole.read(text, 0, schemas)
        if read and not text[read[1] :].strip() and all(c.name in schemas for c in read[0]):
            return Said("", tuple(read[0]))
        broken = _match(whole.begun, text, 0)
        if broken and broken["name"] in schemas:
            return Said(text, (), readable=False)
    return Said(text)


def family_of(
    text: str, tools: Collection[Mapping[str, Any]], calls: Collection[ToolCall]
) -> str | None:
    """Returns the family that reads exactly these calls from a text; None if none does."""
    wanted = [(call.name, json.loads(call.arguments)) for call in calls]
    for family in _families():
        read = parse_calls(text, tools, family).calls
        if [(call.name, json.loads(call.arguments)) for call in read] == wanted:
            return family
    return None


@dataclass(frozen=True, slots=True)
class _Format:
    """One format of a family; `call_formats.toml` explains its fields."""

    begins: str = ""
    begun: str = ""
    call: str = ""
    before: str = ""
    after: str = ""
    loose: bool = False
    name: str = "name"
    closes: str = ""
    ends: str = ""
    known: bool = False

    def begun_by(self, mark: str, text: str, place: int, schemas: Mapping[str, Any]) -> bool:
        """Whether this mark, which ends at `place`, begins calls in this format."""
        if not self.begins or not re.fullmatch(self.begins, mark):
            return False
        head = _match(self.call, text, place) if self.known else None
        return not self.known or (head is not None and head["name"] in schemas)

    def read(
        self, text: str, place: int, schemas: Mapping[str, Any]
    ) -> tuple[list[ToolCall], int] | None:
        """Returns the calls from `place` on, after their mark, and where they end; None if they
        cannot be read."""
        calls: list[ToolCall | None] = []
        while (head := _match(self.call, text, place)) and (head[0] or not calls):
            name = head.groupdict().get("name")
            try:
                given, place = self._given(text, head.end(), schemas.get(name or ""))
                calls += [_call(*each) for each in ([(name, given)] if name else self._named(given))]
                place = self._end(self.closes, text, place, required=bool(self.before))
            except (ValueError, TypeError, RecursionError):
                return None
        try:
            place = self._end(self.ends, text, place, bool(self.before and not self.closes))
        except ValueError:
            return None
        read = [call for call in calls if call is not None]
        return (read, place) if calls and len(read) == len(calls) else None

    def _given(self, text: str, place: int, schema: Any) -> tuple[Any, int]:
        """Returns what is given from `place` on, and where it ends. Raises `ValueError`."""
        if self.before:
            return self._values(text, place, schema)
        place = _match("", text, place).end()
        return _read_loose(text, place) if self.loose else read_json_at(text, place)

    def _values(self, text: str, place: int, schema: Any) -> tuple[dict[str, Any], int]:
        """Returns values in elements, such as Qwen3-Coder's."""
        last = rf"{self.closes}\s*(?:{self.ends}|{self.call}|\Z)" if self.closes else self.ends
        # A value ends before another one, or after the last: its text may mention marks itself.
        after = rf"{self.after}(?=\s*(?:{self.before}|{last}))".replace("NAME", "KEY")
        after = _compiled(after.replace("KEY", r"[^<>\n]+?"))
        known = schema.get("properties") if isinstance(schema, Mapping) else None
        given: dict[str, Any] = {}
        while key := _match(self.before, text, place):
            end = after.search(text, key.end())
            if end is None or key["key"] in given:
                raise ValueError
            kind = known.get(key["key"]) if isinstance(known, Mapping) else None
            given[key["key"]] = _value(text[key.end() : end.start()], _types(kind))
            place = end.end()
        return given, place

    def _named(self, given: Any) -> Iterator[tuple[Any, Any]]:
        """Yields the name and the arguments of each call."""
        for call in given if isinstance(given, list) else [given]:
            if self.loose:
                name, arguments = call
            elif not isinstance(call, dict):
                raise ValueError
            elif self.name:
                name, arguments = call.get(self.name), call.get("arguments", call.get("parameters"))
            else:
                [(name, arguments)] = call.items()
            yield name, arguments

    def _end(self, mark: str, text: str, place: int, required: bool) -> int:
        """Returns where a closing mark ends. An answer may end before it: it may be the token that
        ends turns. Raises `ValueError`."""
        if found := _match(mark, text, place):
            return found.end() if mark else place
        if required or text[place:].strip():
            raise ValueError
        return len(text)


@cache
def _families() -> dict[str, tuple[_Format, ...]]:
    file = resources.files(__package__) / "call_formats.toml"
    read = tomllib.loads(file.read_text("utf-8"))
    return {name: tuple(_Format(**each) for each in formats) for name, formats in read.items()}


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    named = pattern.replace("NAME", r"(?P<name>[^<>\n\[\]{}|]+?)")
    return re.compile(named.replace("KEY", r"(?P<key>[^<>\n]+?)"), re.DOTALL)


def _match(pattern: str, text: str, place: int) -> re.Match[str] | None:
    """Returns a match at `place` or after white space there."""
    space = _SPACE.match(text, place)
    return _compiled(pattern).match(text, space.end() if space else place)


def call_of(name: str, arguments: str) -> ToolCall | None:
    """Returns a call with normalized arguments; None if they are not a JSON object."""
    try:
        given = read_json(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return _written(name, given)


def _read_loose(text: str, place: int) -> tuple[Any, int]:
    """Returns a value with unquoted keys (Gemma), or a Python list of calls as [name, arguments],
    and where it ends. Raises `ValueError`, and `RecursionError` for too deep nesting."""
    written, opened = list[str](), list[str]()
    while token := _LOOSE.match(text, place):
        place, kind, word = token.end(), token.lastgroup, token[0]
        if kind in ("marked", "escape"):
            word = json.dumps(token[kind])
        elif kind == "quoted":
            word = f'"{_ESCAPE.sub(_escaped, token[kind])}"'
        elif kind == "word":
            word = {"none": "null"}.get(word.lower(), word.lower())
        elif kind == "key":
            word = f"{json.dumps(token[kind].strip())}:"
        elif kind == "function" and opened == ["]"]:
            opened.append(")")
            word = f'["{token[kind]}",{{'
        elif word in ("[", "{"):
            opened.append("]" if word == "[" else "}")
        elif word in ("]", "}", ")"):
            if not opened or opened.pop() != word:
                break
            word = "}]" if word == ")" else word
        elif kind:
            break
        written.append(word)
        if not opened:
            return read_json("".join(written)), place
    raise ValueError


def _escaped(match: re.Match[str]) -> str:
    """Returns a character of a Python string as JSON has it."""
    code, quote, control = match.groups()
    if code or control:
        return f"\\u{int(code, 16) if code else ord(control):04x}"
    return {'"': '\\"', "'": "'"}.get(quote, match[0])


def _call(name: Any, given: Any) -> ToolCall | None:
    if not isinstance(name, str):
        return None
    return call_of(name, given) if isinstance(given, str) else _written(name, given)


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


def _value(text: str, types: set[str]) -> Any:
    """Returns a parameter's value in one of these types if possible, else its text."""
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


def _written(name: str, given: Any) -> ToolCall | None:
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
