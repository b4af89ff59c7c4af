"""OpenAI's chat completions API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from rlanything.records import ChatRole, Message
from rlanything.strict_json import finite_json
from rlanything_agent.asked import Asked, Denial, misplaced
from rlanything_agent.conversation import PolicyAnswer
from rlanything_agent.dialects.base import Body, Dialect, pieces, thought_of, token_logprobs
from rlanything_agent.fields import (
    choices,
    count_of,
    flag_of,
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
    in_order,
    joined,
    says_something,
    text_in,
)

_IGNORED = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty"),
        *("frequency_penalty", "repetition_penalty", "reasoning_effort", "verbosity", "user"),
        *("metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
    }
)
"""Accepted, but without effect. The run decides how answers are sampled; differently sampled
answers would train a policy that is never used."""
_HONOURED = frozenset(
    {
        *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens"),
        *("max_completion_tokens", "stop", "n", "stream", "stream_options", "logprobs"),
        *("top_logprobs", "response_format"),
    }
)
MOST_ANSWERS = 128
_ROLES: Mapping[str, ChatRole] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_READ: Mapping[str, frozenset[str]] = {
    "assistant": frozenset({"role", "content", "tool_calls", "refusal"}),
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
}
"""Message keys that are read, by role; for other roles these are role and content."""
_REFUSED = {
    "function_call": "send tool_calls",
    "audio": "send its transcript as content",
}
_TEXTS = (None, "text", "input_text", "output_text")
_CALL_FORM = (
    "each of tool_calls needs a function with a name and arguments that are a JSON object as text"
)
_RESULTS = ResultWords("tool_call_id", "message of role tool")


class ChatCompletions(Dialect):
    """Chat completions; `n`, `stop` and `logprobs` are honoured."""

    path = "/v1/chat/completions"
    prompt = "messages"

    def read(self, body: Any, images: bool, count_only: bool = False) -> Asked:
        given = given_fields(body, _HONOURED, _IGNORED)
        _refuse_formats(given)
        reader = TurnReader(images)
        listed = list_of(given, "messages")
        turns = [_turn(reader, f"messages[{i}]", message) for i, message in enumerate(listed)]
        tools, one_call = _tools(given, reader.ignored)
        options = members(given, "stream_options", {"include_usage", "include_obfuscation"})
        if options.get("include_obfuscation"):
            reader.ignore("stream_options", ["include_obfuscation"])
        limits = [count_of(given, name) for name in ("max_completion_tokens", "max_tokens")]
        return Asked(
            model=text_of(given, "model"),
            messages=in_order(turns, _RESULTS),
            tools=tools,
            choices=choices(given),
            max_tokens=min(filter(None, limits), default=None),
            stop=stop_of(given, "stop"),
            answers=count_of(given, "n", MOST_ANSWERS) or 1,
            stream=flag_of(given, "stream"),
            logprobs=flag_of(given, "logprobs"),
            one_call=one_call,
            images=tuple(reader.images),
            chat_template_kwargs=template_kwargs(given),
            count_only=count_only,
            ignored=tuple(sorted(reader.ignored | (given.keys() & _IGNORED))),
            own=flag_of(options, "include_usage"),
        )

    def reply(self, asked: Asked, answers: Sequence[PolicyAnswer]) -> Body:
        body = {
            **_head("chat.completion", asked, answers),
            "choices": [
                {
                    "index": index,
                    "message": _message(answer),
                    "finish_reason": _finish(answer),
                    "logprobs": _logprobs(token_logprobs(answer, None)) if asked.logprobs else None,
                }
                for index, answer in enumerate(answers)
            ],
            "usage": _usage(answers),
        }
        return finite_json(body)

    def events(self, asked: Asked, answers: Sequence[PolicyAnswer]) -> bytes:
        head = _head("chat.completion.chunk", asked, answers)
        chunks: list[Body] = []
        for index, answer in enumerate(answers):
            tokens = pieces(token_logprobs(answer, None)) if asked.logprobs else []
            told = zip_longest(_deltas(_message(answer)), tokens)
            said = [
                (delta or {}, None, None if some is None else _logprobs(some))
                for delta, some in told
            ]
            for delta, reason, logprobs in (*said, ({}, _finish(answer), None)):
                choice = {"delta": delta, "finish_reason": reason, "logprobs": logprobs}
                chunks.append({**head, "choices": [{"index": index, **choice}]})
        if asked.own:
            chunks.append({**head, "choices": [], "usage": _usage(answers)})
        events = [json.dumps(finite_json(chunk)) for chunk in chunks]
        return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()

    def failed(self, asked: Asked, refusal: Denial) -> bytes:
        return f"data: {json.dumps(self.error(refusal))}\n\n".encode()


def _refuse_formats(given: Mapping[str, Any]) -> None:
    kind = given.get("response_format", {"type": "text"})
    kind = kind.get("type") if isinstance(kind, Mapping) else kind
    if kind != "text":
        raise unforceable("response_format", kind)
    if given.get("top_logprobs"):
        raise Denial("top_logprobs: only sampled tokens have log-probs here", "top_logprobs")


def _tools(
    given: Mapping[str, Any], ignored: set[str]
) -> tuple[tuple[Mapping[str, Any], ...], bool]:
    """Returns the functions that may be called, and whether at most one call is allowed. Adds the
    fields without effect to `ignored`."""
    tools: list[Mapping[str, Any]] = []
    for tool in named_tools(given, "functions"):
        function = tool.get("function")
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise Denial("tools must be a list of functions, each with a name", "tools")
        ignored |= {f"tools.{name}" for name in tool.keys() - {"type", "function"}}
        ignored |= {"tools.function.strict"} if function.get("strict") else set()
        tools.append({name: value for name, value in function.items() if name != "strict"})
    choice = given.get("tool_choice", "auto")
    if isinstance(choice, Mapping):
        function = choice.get("function")
        named = function.get("name") if isinstance(function, Mapping) else None
        tools = only(tools, named, ignored)
    elif choice == "none":
        tools = []
    elif choice == "required":
        ignored.add("tool_choice")
    elif choice != "auto":
        raise Denial("tool_choice must be auto, none, required or a function", "tool_choice")
    return tuple(tools), not flag_of(given, "parallel_tool_calls", True)


def _turn(reader: TurnReader, place: str, value: Any) -> Turn:
    role = value.get("role") if isinstance(value, Mapping) else None
    if not isinstance(role, str) or role not in _ROLES:
        raise misplaced(place, f"role must be one of {', '.join(_ROLES)}")
    given = {name: member for name, member in value.items() if says_something(member)}
    for name, remedy in _REFUSED.items():
        if name in given:
            raise misplaced(place, f"{name} is not supported: {remedy}")
    if "tool_calls" in given and role != "assistant":
        raise misplaced(place, f"a message of role {role} has no tool_calls: leave them out")
    thoughts = [name for name in _THOUGHTS if name in given] if role == "assistant" else []
    read = _READ.get(role, frozenset({"role", "content"})) | {*thoughts[:1]}
    # Most clients that send both send the same text twice.
    same = {name for name in thoughts[1:] if given[name] == given[thoughts[0]]}
    reader.ignore("messages", given.keys() - read - same)
    text, images, thought = _content(reader, place, given.get("content"), role)
    refusal = text_in(place, given, "refusal") if role == "assistant" else ""
    spoken = [text_in(place, given, name) for name in thoughts[:1]]
    called = given.get("tool_calls", ())
    if not isinstance(called, Sequence) or isinstance(called, str):
        raise misplaced(place, "tool_calls must be a list")
    message = Message(
        _ROLES[role],
        joined((text, refusal)),
        images,
        tuple(_call(reader, place, call) for call in called),
        text_in(place, given, "name") if role == "tool" else "",
        joined((*spoken, thought if thought not in spoken else "")),
    )
    ids = tuple(text_in(place, call, "id") for call in called)
    answers = text_in(place, given, "tool_call_id") if role == "tool" else ""
    return Turn(place, message, ids, answers)


def _content(
    reader: TurnReader, place: str, value: Any, role: str
) -> tuple[str, tuple[str, ...], str]:
    """Returns a message's text, the names of its images, and its reasoning."""
    if value is None or isinstance(value, str):
        return value or "", (), ""
    if not isinstance(value, list) or not all(isinstance(part, Mapping) for part in value):
        raise misplaced(place, "content must be a text or a list of parts")
    texts = list[str]()
    names = list[str]()
    thoughts = list[str]()
    for part in value:
        kind = part.get("type")
        thought = _thought(part) if role == "assistant" else None
        if thought is not None:
            thoughts.append(thought)
            read = {"type", "thinking", "reasoning", "text"}
        elif kind == "refusal" and isinstance(part.get("refusal"), str):
            texts.append(part["refusal"])
            read = {"type", "refusal"}
        elif kind in _TEXTS and isinstance(part.get("text"), str):
            texts.append(part["text"])
            read = {"type", "text"}
        elif kind == "image_url":
            url = part.get("image_url")
            names.append(
                reader.image_at(place, url.get("url") if isinstance(url, Mapping) else url)
            )
            read = {"type", "image_url"}
            if isinstance(url, Mapping):
                reader.ignore("messages.content.image_url", url.keys() - {"url"})
        else:
            raise misplaced(place, f"parts of type {kind!r:.80} are not supported")
        reader.unread("messages.content", part, read)
    return "\n".join(texts), tuple(names), "\n".join(thoughts)


def _call(reader: TurnReader, place: str, value: Any) -> Any:
    function = value.get("function") if isinstance(value, Mapping) else None
    function = function if isinstance(function, Mapping) else {}
    call = reader.call(place, function.get("name"), function.get("arguments", 0), _CALL_FORM)
    reader.ignore("messages.tool_calls", value.keys() - {"id", "type", "function", "index"})
    reader.ignore("messages.tool_calls.function", function.keys() - {"name", "arguments"})
    return call


def _thought(part: Mapping[str, Any]) -> str | None:
    """Returns the reasoning in a message part, or None for a part of another kind."""
    if part.get("type") not in ("thinking", "reasoning"):
        return None
    value = part.get("thinking", part.get("reasoning", part.get("text")))
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        value = "\n".join(str(each.get("text", "")) for each in value)
    return value if isinstance(value, str) else None


def _head(kind: str, asked: Asked, answers: Sequence[PolicyAnswer]) -> Body:
    # Derived from the answer's number, not from a clock: a replayed episode must see the same id.
    name = f"chatcmpl-{answers[0].number}"
    return {"id": name, "object": kind, "created": 0, "model": asked.model}


def _message(answer: PolicyAnswer) -> Body:
    said = answer.said
    body: Body = {"role": "assistant", "content": said.content or (None if said.calls else "")}
    if thought := thought_of(answer):
        body["reasoning_content"] = thought
    if not said.calls:
        return body
    calls = [
        {
            "id": f"call_{answer.number}_{i}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for i, call in enumerate(said.calls)
    ]
    return {**body, "tool_calls": calls}


def _finish(answer: PolicyAnswer) -> str:
    return "tool_calls" if answer.said.calls else answer.completion.stop_reason


def _deltas(message: Body) -> Iterator[Body]:
    """Yields a message in pieces: reasoning, text, then the arguments of each call."""
    yield {"role": message["role"], "content": "" if message["content"] else message["content"]}
    for name in ("reasoning_content", "content"):
        yield from ({name: piece} for piece in pieces(message.get(name) or "") if piece)
    for i, call in enumerate(message.get("tool_calls", ())):
        first, *rest = pieces(call["function"]["arguments"])
        begun = {**call, "function": {**call["function"], "arguments": first}}
        yield {"tool_calls": [{"index": i, **begun}]}
        yield from ({"tool_calls": [{"index": i, "function": {"arguments": r}}]} for r in rest)


def _logprobs(tokens: list[Body]) -> Body:
    return {"content": tokens, "refusal": None}


def _usage(answers: Sequence[PolicyAnswer]) -> Body:
    asked = len(answers[0].completion.prompt_ids)
    sampled = sum(len(answer.completion.token_ids) for answer in answers)
    return {
        "prompt_tokens": asked,
        "completion_tokens": sampled,
        "total_tokens": asked + sampled,
    }
