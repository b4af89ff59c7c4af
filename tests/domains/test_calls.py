"""Calls in what a model wrote: JSON and elements, read strictly, or left as text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlanything.domains.calls import call_of, parse_calls

KINDS: dict[str, Any] = {
    "word": {"type": "string"},
    "most": {"type": "integer"},
    "least": {"type": "number"},
    "exact": {"type": "boolean"},
    "tags": {"type": "array"},
    "more": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "mode": {"enum": ["1", "2"]},
    "any": {},
}
SEARCH = {"name": "search", "parameters": {"type": "object", "properties": KINDS}}


def elements(**values: str) -> str:
    inner = "".join(
        f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in values.items()
    )
    return f"<function=search>\n{inner}</function>"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"word": "under the bed"}, {"word": "under the bed"}),
        ({"word": "5"}, {"word": "5"}),
        ({"word": "null"}, {"word": "null"}),
        ({"word": "two\nlines "}, {"word": "two\nlines "}),
        ({"word": "a </parameter> in it"}, {"word": "a </parameter> in it"}),
        ({"most": "5", "least": "0.5"}, {"most": 5, "least": 0.5}),
        ({"exact": "True"}, {"exact": True}),
        ({"exact": "false", "more": "None"}, {"exact": False, "more": None}),
        ({"more": "3"}, {"more": 3}),
        ({"tags": '["a", 1]'}, {"tags": ["a", 1]}),
        ({"mode": "1"}, {"mode": "1"}),
        ({"any": "1", "unknown": "true"}, {"any": "1", "unknown": "true"}),
        ({"any": '{"a": 1}'}, {"any": {"a": 1}}),
        ({"most": "many"}, {"most": "many"}),
        ({"least": "NaN"}, {"least": "NaN"}),
        ({}, {}),
    ],
)
def test_values_of_elements_have_the_types_of_the_schema(
    written: dict[str, str], read: dict[str, Any]
) -> None:
    for text in (f"<tool_call>\n{elements(**written)}\n</tool_call>", elements(**written)):
        said = parse_calls(f"Well.\n{text}", [SEARCH])
        assert said.readable
        assert said.content == "Well."
        [call] = said.calls
        assert (call.name, json.loads(call.arguments)) == ("search", read)


def test_several_calls_are_read_in_their_order() -> None:
    one, two = elements(word="a"), '{"name": "other", "arguments": {"x": 1}}'
    said = parse_calls(f"<tool_call>{one}</tool_call> and <tool_call>{two}</tool_call>", [SEARCH])
    assert [call.name for call in said.calls] == ["search", "other"]
    assert said.content == "and"
    bare = parse_calls(f"{one}\n{elements(word='b')}", [SEARCH])
    assert [json.loads(call.arguments)["word"] for call in bare.calls] == ["a", "b"]


@pytest.mark.parametrize(
    "arguments",
    ['{"x": NaN}', '{"x": -Infinity}', '{"x": 1e999}', '{"x": 1, "x": 2}', "[1]", "1", "{'x': 1}"],
)
def test_arguments_that_are_no_strict_json_object_are_no_call(arguments: str) -> None:
    text = f'<tool_call>{{"name": "search", "arguments": {arguments}}}</tool_call>'
    said = parse_calls(text, [SEARCH])
    assert (said.content, said.calls, said.readable) == (text, (), False)
    assert call_of("search", arguments) is None


@pytest.mark.parametrize("arguments", ["null", '"null"', '""', "{}", '"{}"'])
def test_arguments_that_are_nothing_are_none(arguments: str) -> None:
    text = f'<tool_call>{{"name": "search", "arguments": {arguments}}}</tool_call>'
    [call] = parse_calls(text, [SEARCH]).calls
    assert call.arguments == "{}"


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=search>\n<parameter=word>\nunder the",
        "<function=search>\n<parameter=word>\nunder the",
        f"<tool_call>{elements(word='a').replace('</function>', 'and more</function>')}",
        "<tool_call><function=search><parameter=a>1</parameter><parameter=a>2</parameter>"
        "</function></tool_call>",
        "<tool_call>look around</tool_call>",
        f"<tool_call>{elements(word=f'<tool_call>{elements()}</tool_call>')}</tool_call>",
    ],
)
def test_a_call_that_cannot_be_read_stays_text(text: str) -> None:
    said = parse_calls(text, [SEARCH])
    assert (said.content, said.calls, said.readable) == (text, (), False)


def test_long_texts_of_marks_are_read_at_once() -> None:
    many = "<function=search>" * 20_000
    for text in (many, f"{many}</function>", "<tool_call>" * 50_000, f"{elements()}{many}"):
        assert not parse_calls(text, [SEARCH]).readable


def test_elements_of_other_names_are_text() -> None:
    text = "<function=other></function>"
    assert parse_calls(text, [SEARCH]).content == text
