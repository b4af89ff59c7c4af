"""Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from rlanything.records import Message, ToolCall
from rlanything_agent.asked import TOO_LONG, Asked, Denial, misplaced
from rlanything_agent.conversation import PolicyAnswer
from rlanything_agent.dialects.base import Body, Dialect, named_events, pieces, thought_of
from rlanything_agent.fields import (
    Tool,
    choices,
    count_of,
    flag_of,
    function_of,
    given_fields,
    list_of,
    members,
    named_tools,
    only,
    stop_of,
    template_kwargs,
    text_of,
    unforceable,
)
from rlanything_agent.turns import (
    ResultWords,
    Turn,
    TurnReader,
    id_in,
    in_order,
    joined,
    text_in,
)

_IGNORED = frozenset(
    {
        *("temperature", "top_p", "top_k", "metadata", "service_tier", "inference_geo", "speed"),
        *("thinking", "cache_control", "context_management", "diagnostics", "user_profile_id"),
        "workspace_id",
    }
)
"""Accepted, but without effect."""
_HONOURED = frozenset(
    {
        *("model", "messages", "system", "tools", "tool_choice", "max_tokens", "stop_sequences"),
        *("stream", "output_config"),
    }
)
_BLOCKS: Mapping[str, Sequence[str]] = {
    "system": ("text",),
    "user": ("text", "image", "tool_result"),
    "assistant": ("thinking", "text", "tool_use"),
}
"""Kinds of content blocks that are read, by role."""
_TOOL_FIELDS = frozenset({"type", "name", "description", "input_schema"})
_IMAGE_FORM = 'with source {"type": "base64", "media_type": "image/png", "data": ...}'
_CALL_FORM = "a block of type tool_use needs a name and an input that is a JSON object"
_RESULTS = ResultWords("tool_use_id", "block of type tool_result")
_UNSIGNED = "unsigned"
"""Signature of thinking blocks. Clients drop blocks without one; here it has no meaning."""
_KINDS = MappingProxyType(
    {
        401: "authentication_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        504: "timeout_error",
    }
)
"""Type of an error by its status."""


class AnthropicMessages(Dialect):
    """Messages; `stop_sequences`, thinking blocks and token counts are honoured."""

    path = "/v1/messages"
    counting_path = "/v1/messages/count_tokens"
    prompt = "messages"
    headers = ("anthropic-beta",)
    sign_of_life = named_events([{"type": "ping"}])
    renamed = MappingProxyType({"messages.reasoning_content": "messages.content.thinking"})

    def read(self, body: Any, images: bool, count_only: bool = False) -> Asked:
        given = given_fields(body, _HONOURED, _IGNORED)
        reader = TurnReader(images)
        turns = _system(reader, given.get("system"))
        for i, message in enumerate(list_of(given, "messages")):
            _add(turns, _turns(reader, f"messages[{i}]", message))
        if turns[-1].message.role == "assistant":
            raise misplaced(
                turns[-1].place,
                "the last message is the assistant's, and a begun answer cannot be continued "
                "here: end with a message of role user",
            )
        tools, one_call = _tools(given, reader)
        _format(given, reader)
        if not count_only and given.get("max_tokens") is None:
            raise Denial("max_tokens must be a whole number from 1", "max_tokens")
        return Asked(
            model=text_of(given, "model"),
            messages=in_order(turns, _RESULTS),
            tools=tools,
            choices=choices(given),
            max_tokens=count_of(given, "max_tokens"),
            stop=stop_of(given, "stop_sequences"),
            stream=flag_of(given, "stream"),
            one_call=one_call,
            images=tuple(reader.images),
            chat_template_kwargs=template_kwargs(given),
            count_only=count_only,
            ignored=tuple(sorted(reader.ignored | (given.keys() & _IGNORED))),
        )

    def reply(self, asked: Asked, answers: Sequence[PolicyAnswer]) -> Body:
        [answer] = answers
        return {
            # Derived from the answer's number, as in the other dialects.
            "id": f"msg_{answer.number}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": _content(answer),
            "stop_reason": _stop_reason(answer),
            "stop_sequence": None,
            "usage": {
                "input_tokens": len(answer.completion.prompt_ids),
                "output_tokens": len(answer.completion.token_ids),
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        }

    def events(self, asked: Asked, answers: Sequence[PolicyAnswer]) -> bytes:
        body = self.reply(asked, answers)
        usage = body["usage"]
        begun = {"content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 0}}
        events: list[Body] = [{"type": "message_start", "message": {**body, **begun}}]
        for index, block in enumerate(body["content"]):
            empty, deltas = _streamed(block)
            place = {"index": index}
            events.append({"type": "content_block_start", **place, "content_block": empty})
            events += ({"type": "content_block_delta", **place, "delta": d} for d in deltas)
            events.append({"type": "content_block_stop", **place})
        end = {"stop_reason": body["stop_reason"], "stop_sequence": None}
        events.append({"type": "message_delta", "delta": end, "usage": usage})
        return named_events([*events, {"type": "message_stop"}])

    def failed(self, asked: Asked, refusal: Denial) -> bytes:
        return named_events([self.error(refusal)])

    def count(self, tokens: int) -> Body:
        return {"input_tokens": tokens}

    @classmethod
    def error(cls, refusal: Denial) -> Body:
        kind = "api_error" if refusal.status >= 500 else "invalid_request_error"
        long = refusal.code == TOO_LONG  # the wording that clients look for
        said = f"prompt is too long: {refusal.message}" if long else refusal.message
        return {
            "type": "error",
            "error": {"type": _KINDS.get(refusal.status, kind), "message": said},
            "request_id": None,
        }


def _system(reader: TurnReader, value: Any) -> list[Turn]:
    """Returns the turn of the system prompt, if there is one."""
    if not value:
        return []
    return _turns(reader, "system", {"role": "system", "content": value})


def _add(turns: list[Turn], more: Sequence[Turn]) -> None:
    """Appends turns. Neighbours of the assistant become one: clients may send its blocks one by
    one."""
    for turn in more:
        last = turns[-1] if turns else None
        if last is None or not last.message.role == turn.message.role == "assistant":
            turns.append(turn)
            continue
        one, other = last.message, turn.message
        message = Message(
            "assistant",
            joined((one.content, other.content)),
            calls=(*one.calls, *other.calls),
            thought=joined((one.thought, other.thought)),
        )
        turns[-1] = replace(turn, message=message, ids=(*last.ids, *turn.ids))


def _turns(reader: TurnReader, place: str, value: Any) -> list[Turn]:
    """Returns the turns of a message; results of calls are turns of their own."""
    role = value.get("role") if isinstance(value, Mapping) else None
    if not isinstance(role, str) or role not in _BLOCKS:
        raise misplaced(place, "role must be one of user, assistant, system")
    reader.unread("messages", value, {"role", "content"})
    content = value.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
        raise misplaced(place, "content must be a text or a list of blocks")
    turns: list[Turn] = []
    parts: list[tuple[str, Mapping[str, Any]]] = []
    for i, block in enumerate(content):
        kind, own = block.get("type"), f"{place}.content[{i}]"
        if kind not in _BLOCKS[role]:
            said = f"blocks of type {kind!r:.80} in a message of role {role} are not supported"
            raise misplaced(own, f"{said}: leave it out")
        if kind != "tool_result":
            parts.append((own, block))
            continue
        if parts:
            turns.append(_turn(reader, place, role, parts))
            parts = []
        turns.append(_result(reader, own, block))
    return turns if turns and not parts else [*turns, _turn(reader, place, role, parts)]


def _turn(
    reader: TurnReader, place: str, role: Any, parts: Sequence[tuple[str, Mapping[str, Any]]]
) -> Turn:
    texts, thoughts, names = list[str](), list[str](), list[str]()
    calls, ids = list[ToolCall](), list[str]()
    for own, block in parts:
        read = {"type"}
        match block["type"]:
            case "text":
                texts.append(_text(own, block, "text"))
                read |= {"text"}
            case "thinking":
                thoughts.append(_text(own, block, "thinking"))
                read |= {"thinking", "signature"}
            case "image":
                names.append(_image(reader, own, block))
                read |= {"source"}
            case _:
                given = block.get("input")
                arguments = given if isinstance(given, Mapping) else 0
                calls.append(reader.call(own, block.get("name"), arguments, _CALL_FORM))
                ids.append(id_in(own, block, "id"))
                read |= {"id", "name", "input"}
        reader.unread("messages.content", block, read)
    message = Message(
        role, "\n".join(texts), tuple(names), tuple(calls), thought="\n".join(thoughts)
    )
    return Turn(place, message, tuple(ids))


def _result(reader: TurnReader, place: str, block: Mapping[str, Any]) -> Turn:
    reader.unread("messages.content", block, {"type", "tool_use_id", "content", "is_error"})
    if block.get("is_error"):
        reader.ignore("messages.content", ["is_error"])
    content = block.get("content")
    texts, names = list[str](), list[str]()
    if isinstance(content, str):
        texts.append(content)
    elif content is not None and not isinstance(content, list):
        raise misplaced(place, "content must be a text or a list of blocks")
    for i, part in enumerate(content if isinstance(content, list) else ()):
        own = f"{place}.content[{i}]"
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text":
            texts.append(_text(own, part, "text"))
        elif kind == "image":
            names.append(_image(reader, own, part))
        else:
            raise misplaced(
                own, f"blocks of type {kind!r:.80} in a result are not supported: send text"
            )
        reader.unread("messages.content.content", part, {"type", "text", "source"})
    message = Message("tool", "\n".join(texts), tuple(names))
    return Turn(place, message, answers=id_in(place, block, "tool_use_id"))


def _text(place: str, block: Mapping[str, Any], name: str) -> str:
    if not isinstance(block.get(name), str):
        raise misplaced(place, f"{name} must be a text")
    return text_in(place, block, name)


def _image(reader: TurnReader, place: str, block: Mapping[str, Any]) -> str:
    source = block.get("source")
    source = source if isinstance(source, Mapping) else {}
    kind = source.get("media_type") if source.get("type") == "base64" else None
    return reader.image(place, kind, source.get("data"), _IMAGE_FORM)


def _tools(given: Mapping[str, Any], reader: TurnReader) -> tuple[tuple[Tool, ...], bool]:
    """Returns the functions that may be called, in OpenAI's form, and whether at most one call is
    allowed."""
    tools: list[Tool] = []
    for i, tool in enumerate(named_tools(given, "tools")):
        if not isinstance(tool.get("name"), str):
            raise Denial("tools must be a list of tools, each with a name", "tools")
        if (kind := tool.get("type") or "custom") != "custom":
            raise misplaced(
                f"tools[{i}]",
                f"tools of type {kind!r:.80} are not supported: describe it as your own",
            )
        said = {name: value for name, value in tool.items() if value not in (None, False)}
        reader.unread("tools", said, _TOOL_FIELDS)
        tools.append(function_of(tool, "input_schema"))
    choice = members(given, "tool_choice", {"type", "name", "disable_parallel_tool_use"})
    match choice.get("type", "auto"):
        case "auto":
            pass
        case "none":
            tools = []
        case "any":
            reader.ignored.add("tool_choice")
        case "tool":
            tools = only(tools, choice.get("name"), reader.ignored)
        case _:
            raise Denial("the type of tool_choice must be auto, any, tool or none", "tool_choice")
    return tuple(tools), flag_of(choice, "disable_parallel_tool_use")


def _format(given: Mapping[str, Any], reader: TurnReader) -> None:
    config = members(given, "output_config", {"effort", "format"})
    if "format" in config:
        form = config["format"]
        raise unforceable(
            "output_config.format", form.get("type") if isinstance(form, Mapping) else form
        )
    reader.ignore("output_config", config.keys())


def _content(answer: PolicyAnswer) -> list[Body]:
    """Returns the blocks of an answer."""
    said = answer.said
    blocks: list[Body] = []
    if thought := thought_of(answer):
        blocks.append({"type": "thinking", "thinking": thought, "signature": _UNSIGNED})
    if said.content or not said.calls:
        blocks.append({"type": "text", "text": said.content})
    for i, call in enumerate(said.calls):
        block = {"type": "tool_use", "id": f"toolu_{answer.number}_{i}", "name": call.name}
        blocks.append({**block, "input": json.loads(call.arguments)})
    return blocks


def _streamed(block: Body) -> tuple[Body, list[Body]]:
    """Returns a block as its stream begins, and the deltas that complete it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [
                {"type": "text_delta", "text": piece} for piece in pieces(block["text"])
            ]
        case "thinking":
            return {**block, "thinking": "", "signature": ""}, [
                *({"type": "thinking_delta", "thinking": p} for p in pieces(block["thinking"])),
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case _:
            arguments = json.dumps(block["input"], ensure_ascii=False)
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in pieces(arguments)
            ]


def _stop_reason(answer: PolicyAnswer) -> str:
    if answer.said.calls:
        return "tool_use"
    return "max_tokens" if answer.completion.stop_reason == "length" else "end_turn"
