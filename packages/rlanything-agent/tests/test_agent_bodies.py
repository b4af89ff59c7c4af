"""Bodies of the Messages and Responses APIs: read, named as ignored, or refused in one line."""

from __future__ import annotations

import base64
import copy
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import PIL.Image
import pytest

from helpers.agents import said
from rlanything.domains.calls import Said
from rlanything.records import Message, ToolCall
from rlanything_agent.asked import Asked, Denial
from rlanything_agent.conversation import PolicyAnswer
from rlanything_agent.dialects.base import Dialect
from rlanything_agent.dialects.chat import ChatCompletions
from rlanything_agent.dialects.messages import AnthropicMessages
from rlanything_agent.dialects.responses import Responses

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}}
ARGUMENTS = '{"word": "cup"}'


def png() -> str:
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (2, 3)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


PICTURE = png()
CHAT: dict[str, Any] = {
    "model": "policy",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Go."},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
            ],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": name, "type": "function", "function": {"name": "f", "arguments": ARGUMENTS}}
                for name in ("a", "b")
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": "of b"},
        {"role": "tool", "tool_call_id": "a", "content": "of a"},
        {"role": "user", "content": "More."},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    "tool_choice": "auto",
    "stream_options": {"include_usage": True},
    "max_tokens": 9,
    "chat_template_kwargs": {"enable_thinking": False},
}
MESSAGES: dict[str, Any] = {
    "model": "policy",
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Go."},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": PICTURE},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                *(
                    {"type": "tool_use", "id": name, "name": "f", "input": {"word": "cup"}}
                    for name in ("a", "b")
                ),
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "b",
                    "content": [{"type": "text", "text": "of b"}],
                },
                {"type": "tool_result", "tool_use_id": "a", "content": "of a", "is_error": False},
                {"type": "text", "text": "More."},
            ],
        },
    ],
    "tools": [{"name": "f", "input_schema": SCHEMA}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
    "max_tokens": 9,
    "chat_template_kwargs": {"enable_thinking": False},
}
RESPONSES: dict[str, Any] = {
    "model": "policy",
    "instructions": "Be brief.",
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Go."},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
        },
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        *(
            {"type": "function_call", "call_id": name, "name": "f", "arguments": ARGUMENTS}
            for name in ("a", "b")
        ),
        {
            "type": "function_call_output",
            "call_id": "b",
            "output": [{"type": "input_text", "text": "of b"}],
        },
        {"type": "function_call_output", "call_id": "a", "output": "of a"},
        {"role": "user", "content": "More."},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}],
    "tool_choice": "auto",
    "text": {"format": {"type": "text"}},
    "include": ["reasoning.encrypted_content"],
    "stream_options": {"include_obfuscation": False},
    "truncation": "disabled",
    "max_output_tokens": 9,
    "chat_template_kwargs": {"enable_thinking": False},
}
BODIES: list[tuple[type[Dialect], dict[str, Any]]] = [
    (ChatCompletions, CHAT),
    (AnthropicMessages, MESSAGES),
    (Responses, RESPONSES),
]


def test_the_same_request_is_the_same_in_every_dialect() -> None:
    first, *others = [kind().read(body, images=True) for kind, body in BODIES]
    assert [message.role for message in first.messages] == [
        *("system", "user", "assistant", "tool", "tool", "user"),
    ]
    assert first.messages[2].thought == "Hm."
    assert first.messages[2].calls == (ToolCall("f", ARGUMENTS),) * 2
    assert [message.content for message in first.messages[3:]] == ["of a", "of b", "More."]
    assert first.ignored == ()
    for other in others:
        assert other.messages == first.messages
        assert other.messages[2].thought == "Hm."
        assert (other.tools, other.images, other.digest) == (
            *(first.tools, first.images, first.digest),
        )
        assert (other.ignored, other.one_call, other.size) == ((), False, first.size)


def messages(*turns: Any, **changes: Any) -> dict[str, Any]:
    return {"model": "policy", "max_tokens": 9, "messages": [*turns], **changes}


def responses(*items: Any, **changes: Any) -> dict[str, Any]:
    return {"model": "policy", "input": [*items], **changes}


USER = {"role": "user", "content": "Go."}
NAMESPACE = {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}


def uses(*ids: Any) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in ids]
    return {"role": "assistant", "content": blocks}


def results(*ids: Any, **more: Any) -> dict[str, Any]:
    blocks = [{"type": "tool_result", "tool_use_id": name, "content": "x"} for name in ids]
    return {"role": "user", "content": [{**block, **more} for block in blocks]}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


TOOL = {"name": "f", "input_schema": SCHEMA}


@pytest.mark.parametrize(
    ("body", "param", "reason"),
    [
        ([], None, "the body must be a JSON object"),
        (messages(), "messages", "messages must be a list that is not empty"),
        (messages("Go."), "messages[0]", "role must be one of user, assistant, system"),
        (messages({"role": "tool"}), "messages[0]", "role must be one of"),
        (messages({"role": "user", "content": 3}), "messages[0]", "a text or a list of blocks"),
        (messages(user({"type": "document"})), "messages[0].content[0]", "type 'document' in a"),
        (messages(user({"type": "thinking"})), "messages[0].content[0]", "type 'thinking' in a me"),
        (messages(user({"type": ["text"]})), "messages[0].content[0]", "not supported"),
        (messages(user({"type": "text"})), "messages[0].content[0]", "text must be a text"),
        (messages(user({"type": "image"})), "messages[0].content[0]", "shown text only"),
        (
            messages(USER, {"role": "assistant", "content": [{"type": "redacted_thinking"}]}),
            "messages[1].content[0]",
            "blocks of type 'redacted_thinking' in a message of role assistant are not supported",
        ),
        (messages(USER, uses("a"), results("x")), "messages[2].content[0]", "'x' is the id of no"),
        (messages(USER, results("x")), "messages[1].content[0]", "tool_use_id 'x' is the id of no"),
        (messages(USER, uses("a"), results(None)), "messages[2].content[0]", "must be a text that"),
        (messages(USER, uses(3), results("a")), "messages[1].content[0]", "id must be a text"),
        (messages(USER, uses("a", "b"), results("a")), "messages[1]", "'b') has no result right"),
        (messages(USER, uses("a"), USER), "messages[1]", "send one block of type tool_result"),
        (messages(USER, uses("a", "a"), results("a")), "messages[1]", "calls share the id 'a'"),
        (
            messages(USER, uses("a"), results("a", "a")),
            "messages[2].content[0]",
            "'a' has several results: send one",
        ),
        (
            messages(USER, uses("a"), results("a", content=[{"type": "document"}])),
            "messages[2].content[0].content[0]",
            "blocks of type 'document' in a result are not supported: send text",
        ),
        (
            messages(USER, {"role": "assistant", "content": "It is"}),
            "messages[1]",
            "a begun answer cannot be continued here",
        ),
        (messages(USER, max_tokens=0), "max_tokens", "a whole number from 1"),
        (messages(USER, max_tokens=None), "max_tokens", "a whole number from 1"),
        (messages(USER, stop_sequences=[""]), "stop_sequences", "none of them empty"),
        (messages(USER, system=3), "system", "content must be a text or a list of blocks"),
        (messages(USER, model=None), "model", "model must be a text"),
        (messages(USER, mcp_servers=[]), "mcp_servers", "mcp_servers is not supported: leave"),
        (messages(USER, n=2), "n", "n is not supported"),
        (messages(USER, tools=[{"type": "bash_20250124", "name": "bash"}]), "tools[0]", "'bash_20"),
        (messages(USER, tools=[{}]), "tools", "tools must be a list of tools, each with a name"),
        (messages(USER, tools=TOOL), "tools", "tools must be a list"),
        (
            messages(USER, tools=[TOOL], tool_choice={"type": "tool", "name": "g"}),
            "tool_choice",
            "tool_choice names 'g', which is none of tools",
        ),
        (messages(USER, tool_choice={"type": "maybe"}), "tool_choice", "must be auto, any, tool"),
        (messages(USER, tool_choice="auto"), "tool_choice", "must be a JSON object"),
        (
            messages(USER, output_config={"format": {"type": "json_schema"}}),
            "output_config.format",
            "'json_schema' cannot be enforced here",
        ),
        (
            messages(USER, output_config={"task_budget": 3}),
            "output_config.task_budget",
            "output_config.task_budget is not supported",
        ),
    ],
)
def test_what_messages_cannot_ask_is_refused(body: Any, param: str | None, reason: str) -> None:
    refused(AnthropicMessages(), body, param, reason)


def called(*ids: Any) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"} for name in ids
    ]


def outputs(*ids: Any) -> list[dict[str, Any]]:
    return [{"type": "function_call_output", "call_id": name, "output": "x"} for name in ids]


@pytest.mark.parametrize(
    ("body", "param", "reason"),
    [
        (3, None, "the body must be a JSON object"),
        (responses(), "input", "input must be a text or a list of items that is not empty"),
        ({"model": "policy"}, "input", "input must be a text or a list of items"),
        (responses("Go."), "input[0]", "an item must be a JSON object"),
        (responses({"role": "tool"}), "input[0]", "role must be one of user, assistant, system"),
        (responses({"role": "user"}), "input[0]", "content must be a text or a list of parts"),
        (responses({"type": "local_shell_call"}), "input[0]", "items of type 'local_shell_call'"),
        (responses({"type": ["message"]}), "input[0]", "are not supported"),
        (responses(user({"type": "input_file"})), "input[0]", "parts of type 'input_file' are not"),
        (
            responses(user({"type": "input_image", "image_url": "x"})),
            "input[0]",
            "this run's policy is shown text only",
        ),
        (responses(USER, *outputs("x")), "input[1]", "call_id 'x' is the id of no call"),
        (responses(USER, *called("a"), *outputs("x")), "input[2]", "call_id 'x' is the id of no"),
        (responses(USER, *called("a", "b"), *outputs("b")), "input[1]", "'a') has no result right"),
        (responses(USER, *called("a")), "input[1]", "one item of type function_call_output for"),
        (responses(USER, *called("a"), *outputs(None)), "input[2]", "call_id must be a text that"),
        (responses(USER, *called(None), *outputs("a")), "input[1]", "call_id must be a text that"),
        (responses(USER, *called("a"), *outputs("a", "a")), "input[2]", "'a' has several results"),
        (
            responses(USER, {**called("a")[0], "arguments": "[1]"}, *outputs("a")),
            "input[1]",
            "a function_call needs a name and arguments that are a JSON object as text",
        ),
        (responses(USER, instructions=3), "instructions", "instructions must be a text"),
        (responses(USER, previous_response_id=3), "previous_response_id", "must be a text"),
        (responses(USER, previous_response_id="r"), "previous_response_id", "'r' is no response"),
        (responses(USER, store="yes"), "store", "store must be true or false"),
        (responses(USER, background=True), "background", "background is not supported"),
        (responses(USER, conversation="c"), "conversation", "conversation is not supported"),
        (responses(USER, prompt={"id": "p"}), "prompt", "prompt is not supported"),
        (responses(USER, include="x"), "include", "include must be a list of texts"),
        (responses(USER, top_logprobs=3), "top_logprobs", "only sampled tokens have log-probs"),
        (
            responses(USER, text={"format": {"type": "json_schema"}}),
            "text.format",
            "'json_schema' cannot be enforced here",
        ),
        (responses(USER, text={"x": 1}), "text.x", "text.x is not supported"),
        (responses(USER, tools=[{"type": "mcp"}]), "tools[0]", "tools of type 'mcp' are not"),
        (responses(USER, tools=[{"type": "function"}]), "tools[0]", "a tool must have a name"),
        (responses(USER, tools=[{"name": "f"}]), "tools[0]", "the type of a tool must be a text"),
        (responses(USER, tools={}), "tools", "it must be a list of functions"),
        (
            responses(USER, tools=[{"type": "custom", "name": "f", "format": {"type": "json"}}]),
            "tools[0]",
            "format must be a text or a grammar",
        ),
        (
            responses(USER, tools=[{"type": "namespace", "name": "a", "tools": [NAMESPACE]}]),
            "tools[0].tools[0]",
            "tools of type 'namespace' are not supported",
        ),
        (
            responses(USER, tools=[NAMESPACE, {"type": "function", "name": "n__f"}]),
            "tools[1]",
            "another tool is called 'n__f' too",
        ),
        (
            responses({"type": "custom_tool_call", "name": "f", "input": {}, "call_id": "c"}),
            "input[0]",
            "a custom_tool_call a name and an input that is a text",
        ),
        (
            responses({"type": "additional_tools", "tools": [NAMESPACE]}),
            "input",
            "input must be a text or a list of items that is not empty",
        ),
        (responses(USER, tool_choice={"type": "mcp"}), "tool_choice", "must be auto, none"),
        (responses(USER, stream_options={"x": 1}), "stream_options.x", "is not supported"),
        (responses(USER, max_output_tokens=0), "max_output_tokens", "a whole number from 1"),
    ],
)
def test_what_responses_cannot_ask_is_refused(body: Any, param: str | None, reason: str) -> None:
    refused(Responses(), body, param, reason)


def refused(dialect: Dialect, body: Any, param: str | None, reason: str) -> None:
    with pytest.raises(Denial) as denial:
        dialect.read(body, images=False)
    assert reason in denial.value.message
    assert (denial.value.param, denial.value.status) == (param, 400)
    assert "\n" not in denial.value.message


@pytest.mark.parametrize(
    ("dialect", "body", "ignored"),
    [
        (
            AnthropicMessages(),
            messages(
                user({"type": "text", "text": "Go.", "cache_control": {"type": "ephemeral"}}),
                uses("a"),
                results("a", is_error=True),
                temperature=1,
                metadata={"user_id": "x"},
                output_config={"effort": "low"},
                context_management={},
                tools=[{**TOOL, "strict": True, "defer_loading": False, "cache_control": {"a": 1}}],
                tool_choice={"type": "any"},
            ),
            [
                *("context_management", "messages.content.cache_control"),
                *("messages.content.is_error", "metadata", "output_config.effort", "temperature"),
                *("tool_choice", "tools.cache_control", "tools.strict"),
            ],
        ),
        (
            Responses(),
            responses(
                {**USER, "phase": "commentary"},
                {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"},
                *called("a"),
                *outputs("a"),
                truncation="auto",
                prompt_cache_key="k",
                stream_options={"include_obfuscation": True},
                tools=[{"type": "function", "name": "f", "strict": True}],
                tool_choice={"type": "function", "name": "f"},
            ),
            [
                *("input.encrypted_content", "input.phase", "prompt_cache_key"),
                *("stream_options.include_obfuscation", "tool_choice", "tools.strict"),
                "truncation",
            ],
        ),
        (
            ChatCompletions(),
            {
                **messages(USER, max_completion_tokens=3),
                "tools": [{"type": "function", "function": {"name": "f"}}],
                "tool_choice": {"type": "function", "function": {"name": "f"}},
                "stream_options": {"include_obfuscation": True},
            },
            ["stream_options.include_obfuscation", "tool_choice"],
        ),
    ],
)
def test_what_has_no_effect_is_named(dialect: Dialect, body: Any, ignored: list[str]) -> None:
    assert [*dialect.read(body, images=False).ignored] == ignored


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_what_is_nested_too_deeply_to_be_passed_on_is_refused(
    kind: type[Dialect], body: dict[str, Any]
) -> None:
    for depth in (80, 120, 900):
        deep: Any = {}
        for _ in range(depth):
            deep = {"a": [deep]} if depth > 800 else {"a": deep}
        asking = {**body, "chat_template_kwargs": {"x": deep}}
        if depth == 80:
            assert kind().read(asking, images=True).digest
            continue
        with pytest.raises(Denial, match="nested too deeply: send a flatter one") as denial:
            kind().read(asking, images=True)
        assert denial.value.param == "chat_template_kwargs"


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_a_conversation_that_is_nested_too_deeply_to_be_kept_is_refused(
    kind: type[Dialect], body: dict[str, Any]
) -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    [name] = {"messages", "input"} & body.keys()
    asking = {**body, name: [{"role": "user", "content": "Hello.", "phase": deep}]}
    with pytest.raises(Denial, match="nested too deeply: send a flatter one") as denial:
        kind().read(asking, images=True)
    assert denial.value.param == name


def test_the_items_of_an_answer_are_one_turn_and_two_answers_are_two() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    text = {"role": "assistant", "content": "I look."}
    one = read_items(USER, thought, text, *called("a"), *outputs("a"), text)
    assert one[1:] == (
        Message("assistant", "I look.", calls=(ToolCall("f", "{}"),)),
        Message("tool", "x"),
        Message("assistant", "I look."),
    )
    assert one[1].thought == "Hm."
    assert read_items(USER, text, text)[1:] == (Message("assistant", "I look."),) * 2
    assert len(read_items(USER, text, thought, text)) == 3
    assert len(read_items(USER, *called("a"), text, *outputs("a"))) == 3


def read_items(*items: Any) -> tuple[Message, ...]:
    return Responses().read(responses(*items), images=False).messages


def answer(text: str = "Yes.", *calls: ToolCall, thought: str = "") -> PolicyAnswer:
    completion = said(f"<think>\n{thought}\n</think>\n\n{text}" if thought else text)
    return PolicyAnswer(Said(text, calls), completion, 7)


def test_sealed_thoughts_come_back_without_the_text_of_the_item() -> None:
    dialect = Responses()
    asked = dialect.read(responses(USER, include=["reasoning.encrypted_content"]), images=False)
    start = "<think>\nHm.\n</think>\n\n"
    thinking = PolicyAnswer(Said("Yes."), said_after(start, "Yes."), 7)
    reasoning, message = dialect.reply(asked, [thinking])["output"]
    sealed = {key: reasoning[key] for key in ("type", "id", "encrypted_content")}
    request = responses(USER, {**sealed, "summary": []}, message, USER)
    again = Responses().read(request, images=False)
    assert (again.messages[1].thought, again.ignored) == ("Hm.", ())


def said_after(start: str, text: str) -> Any:
    return replace(said(start + text), answer_at=len(start))


ODD: list[Any] = [
    *(None, 0, -1, True, 1.5, "", "x", "\ud800", [], {}, [[]], [{}], [None], {"type": []}),
    *({"type": {}}, {"x": {"x": []}}, ["x"], "1" * 99),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of every part of a body."""
    yield path
    inside = value.items() if isinstance(value, dict) else ()
    for name, member in enumerate(value) if isinstance(value, list) else inside:
        yield from places(member, (*path, name))


def changed(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copied = copy.deepcopy(body)
    inner = copied
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return copied


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_a_body_with_any_part_replaced_is_read_or_refused_in_one_line(
    kind: type[Dialect], body: dict[str, Any]
) -> None:
    read = refused = 0
    for path in places(body):
        for value in ODD:
            dialect = kind()
            try:
                asked = dialect.read(changed(body, path, value), images=True)
            except Denial as denial:
                refused += 1
                error = dialect.error(denial)["error"]
                assert "\n" not in error["message"], (path, value)
                json.dumps(error)
            else:
                read += 1
                written(dialect, asked)
    assert read > 50
    assert refused > 300


def written(dialect: Dialect, asked: Asked) -> None:
    """Writes all that a reply may consist of."""
    assert asked.digest
    assert asked.size > 0
    answers = [answer("Yes.", ToolCall("f", ARGUMENTS), thought="Hm.")]
    json.dumps(dialect.reply(asked, answers))
    assert dialect.events(asked, answers)
    dialect.ignored(asked, answers, ["anthropic-beta"]).encode("latin-1")
