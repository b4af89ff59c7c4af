"""Calls in the formats of model families, which `call_formats.toml` describes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from typing import Any

from rlanything.domains.calls import Said, call_of, typed_value, written_call
from rlanything.records import ToolCall
from rlanything.strict_json import read_json

_NAME, _KEY = r"(?P<name>[^<>\n\[\]{}|]+?)", r"(?P<key>[^<>\n]+?)"
_SPACE = re.compile(r"\s*")
# Reading stops where no alternative matches, so that it takes linear time. A Python string ends at
# a quote before a separator, because some templates escape no quotes.
_LOOSE = re.compile(
    r"""<\|"\|>(?P<marked>.*?)<\|"\|>|<escape>(?P<escaped>.*?)<escape>"""
    r"""|(?P<q>["'])(?P<quoted>(?:\\.|(?!(?P=q))[^\\]|(?P=q)(?!\s*[\]),:}]))*+)(?P=q)"""
    r"""|(?P<word>(?:[Tt]rue|[Ff]alse|None|null)\b(?!\s*[=:]))|(?P<function>[^\W\d][\w.-]*)\("""
    r"""|(?P<key>[^\W\d][^<>"'=:,(){}[\]]*)[=:]|-?\d[\d.eE+-]*|[\s,:]+|[\[\]{})]""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"""\\x([0-9a-fA-F]{2})|\\?(["'])|([\0-\x1f])|\\.""", re.DOTALL)
_JSON = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class _Format:
    """A format of calls; `call_formats.toml` explains the fields."""

    begins: str = ""
    begun: str = ""
    call: str = ""
    before: str = ""
    after: str = ""
    loose: bool = False
    name: str = "name"
    closes: str = ""
    ends: str = ""

    def read(
        self, text: str, place: int, schemas: Mapping[str, Any]
    ) -> tuple[tuple[ToolCall, ...], int]:
        """Returns the calls that begin at `place`, after their mark, and where they end. Raises
        `ValueError` if they cannot be read."""
        calls: list[ToolCall] = []
        while (head := _match(self.call, text, place)) and (head[0] or not calls):
            name = head.groupdict().get("name")
            given, place = self._given(text, head.end(), schemas.get(name or ""))
            calls += [_call(*each) for each in ([(name, given)] if name else self._named(given))]
            # JSON and Python end themselves; values in elements do not.
            place = _ended(self.closes, text, place, required=bool(self.before))
        place = _ended(self.ends, text, place, required=bool(self.before and not self.closes))
        if not calls:
            raise ValueError("no call")
        return tuple(calls), place

    def _given(self, text: str, place: int, schema: Any) -> tuple[Any, int]:
        """Returns the value at `place`, and where it ends. Raises `ValueError`."""
        if self.before:
            return self._values(text, place, schema)
        if space := _SPACE.match(text, place):
            place = space.end()
        if self.loose:
            return _read_loose(text, place)
        try:
            _, end = _JSON.raw_decode(text, place)
            return read_json(text[place:end]), end
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def _values(self, text: str, place: int, schema: Any) -> tuple[dict[str, Any], int]:
        """Returns values in elements, and where the last ends. Raises `ValueError`."""
        known = schema.get("properties") if isinstance(schema, Mapping) else None
        given: dict[str, Any] = {}
        while key := _match(self.before, text, place):
            end = _last(self).search(text, key.end())
            if end is None or key["key"] in given:
                raise ValueError("an unclosed value, or two of one name")
            kind = known.get(key["key"]) if isinstance(known, Mapping) else None
            given[key["key"]] = _element(text[key.end() : end.start()], kind)
            place = end.end()
        return given, place

    def _named(self, given: Any) -> Iterator[tuple[Any, Any]]:
        """Yields the name and the arguments of each call. Raises `ValueError`."""
        for call in given if isinstance(given, list) else [given]:
            if self.loose and isinstance(call, list):
                name, arguments = call
            elif self.loose or not isinstance(call, dict):
                raise ValueError("no call")
            elif self.name:
                name, arguments = call.get(self.name), call.get("arguments", call.get("parameters"))
            else:
                [(name, arguments)] = call.items()
            yield name, arguments


def _read(formats: Sequence[_Format], text: str, schemas: Mapping[str, Any]) -> Said:
    """Returns an answer with its calls in these formats, which begin with marks."""
    content, calls, place = list[str](), list[ToolCall](), 0
    marks = _compiled("|".join(dict.fromkeys(each.begins for each in formats)))
    while mark := marks.search(text, place):
        for form in formats:
            if not re.fullmatch(form.begins, mark[0]):
                continue
            try:
                read, end = form.read(text, mark.end(), schemas)
            except ValueError:
                continue
            content.append(text[place : mark.start()])
            calls += read
            place = end
            break
        else:
            return Said(text, (), readable=False)
    content.append(text[place:])
    rest = "".join(content)
    # Marks are left over if the text of a value contained a whole call.
    if not calls or any(each.after and re.search(each.after, rest) for each in formats):
        return Said(text, (), readable=not calls)
    return Said(rest.strip(), tuple(calls))


def _read_whole(form: _Format, text: str, schemas: Mapping[str, Any]) -> Said:
    """Returns an answer that may consist of calls in a format without marks."""
    begun = _match(form.begun, text, 0)
    if begun is None or begun["name"] not in schemas:
        return Said(text)
    try:
        calls, end = form.read(text, 0, schemas)
    except ValueError:
        return Said(text, (), readable=False)
    if text[end:].strip() or any(call.name not in schemas for call in calls):
        return Said(text, (), readable=False)
    return Said("", calls)


def _ended(mark: str, text: str, place: int, required: bool) -> int:
    """Returns where a closing mark ends. Raises `ValueError` without it; but if it is not required,
    the answer may end instead: the mark may be the token that ends turns."""
    if not mark:
        return place
    if closing := _match(mark, text, place):
        return closing.end() if closing[0] else place
    if required or text[place:].strip():
        raise ValueError("an unclosed call")
    return len(text)


@cache
def _last(form: _Format) -> re.Pattern[str]:
    """Returns a pattern of what follows a value: only where another value or the end of the call is
    next, since its text may mention marks itself."""
    last = form.ends
    if form.closes:
        last = rf"{form.closes}\s*(?:{form.ends}|{form.call}|\Z)"
    following = rf"(?=\s*(?:{form.before}|{last}))".replace("NAME", "KEY")
    return re.compile(form.after + following.replace("KEY", r"[^<>\n]+?"), re.DOTALL)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace("NAME", _NAME).replace("KEY", _KEY), re.DOTALL)


def _match(pattern: str, text: str, place: int) -> re.Match[str] | None:
    """Returns a match at `place`, or after the white space there."""
    space = _SPACE.match(text, place)
    return _compiled(pattern).match(text, space.end() if space else place)


def _element(text: str, schema: Any) -> Any:
    """Returns a value in elements; some templates write lists and objects as Python does."""
    value = typed_value(text, schema)
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(value, str) and kind in ("array", "object"):
        with suppress(ValueError):
            loose, end = _read_loose(value, 0)
            return value if value[end:].strip() else loose
    return value


def _read_loose(text: str, place: int) -> tuple[Any, int]:
    """Returns a value with unquoted keys (Gemma), or a Python list of calls as [name, arguments],
    and where it ends. Raises `ValueError`."""
    written, opened = list[str](), list[str]()
    while token := _LOOSE.match(text, place):
        place, kind, word = token.end(), token.lastgroup, token[0]
        if kind in ("marked", "escaped"):
            word = json.dumps(token[kind])
        elif kind == "quoted":
            word = f'"{_ESCAPE.sub(_in_json, token[kind])}"'
        elif kind == "word":
            word = "null" if word == "None" else word.lower()
        elif kind == "key":
            word = f"{json.dumps(token[kind].strip())}:"
        elif kind == "function" and opened == ["]"]:
            opened.append(")")
            word = f'["{token[kind]}",{{'
        elif word in ("[", "{"):
            opened.append("]" if word == "[" else "}")
        elif word in ("]", "}", ")") and opened[-1:] == [word]:
            opened.pop()
            word = "}]" if word == ")" else word
        elif kind or word in ("]", "}", ")"):
            break
        written.append(word)
        if not opened:
            try:
                return read_json("".join(written)), place
            except RecursionError:
                break
    raise ValueError("an unreadable value")


def _in_json(match: re.Match[str]) -> str:
    """Returns a character of a Python string as JSON has it."""
    code, quote, control = match.groups()
    if code or control:
        return f"\\u{int(code, 16) if code else ord(control):04x}"
    return {'"': '\\"', "'": "'"}.get(quote, match[0])


def _call(name: Any, given: Any) -> ToolCall:
    """Raises `ValueError` for what is no call."""
    call = None
    if isinstance(name, str):
        call = call_of(name, given) if isinstance(given, str) else written_call(name, given)
    if call is None:
        raise ValueError("no call")
    return call


def _families() -> Iterator[tuple[str, Callable[[str, Mapping[str, Any]], Said]]]:
    file = resources.files("rlanything_agent") / "call_formats.toml"
    read = tomllib.loads(file.read_text("utf-8"))
    for name, described in read.items():
        formats = [_Format(**each) for each in described]
        whole = not formats[0].begins
        yield name, partial(_read_whole, formats[0]) if whole else partial(_read, formats)


FAMILIES = dict(_families())
"""Parsers by family, for the entry point `rlanything.call_formats`."""
