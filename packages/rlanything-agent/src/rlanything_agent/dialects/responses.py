"""OpenAI's Responses API."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from rlanything.domains.base import Image
from rlanything.records import ChatRole, Message
from rlanything.strict_json import finite_json
from rlanything_agent.asked import Asked, Denial, misplaced
from rlanything_agent.conversation import PolicyAnswer
from rlanything_agent.dialects.base import (
    Body,
    Dialect,
    named_events,
    pieces,
    thought_of,
    token_logprobs,
)
from rlanything_agent.dialects.responses_tools import (
    OwnTool,
    ToolReader,
    call_events,
    call_items,
    read_call,
)
from rlanything_agent.fields import (
    choices,
    count_of,
    flag_of,
    given_fields,
    list_of,
    members,
    template_kwargs,
    text_of,
    unforceable,
    unsupported,
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
        *("temperature", "top_p", "reasoning", "user", "metadata", "service_tier", "truncation"),
        *("safety_identifier", "prompt_cache_key", "prompt_cache_retention", "max_tool_calls"),
        *("prompt_cache_options", "context_management", "client_metadata"),
    }
)
"""Accepted, but without effect."""
_HONOURED = frozenset(
    {
        *("model", "input", "instructions", "previous_response_id", "store", "tools"),
        *("tool_choice", "parallel_tool_calls", "max_output_tokens", "stream", "stream_options"),
        *("include", "text", "top_logprobs", "background"),
    }
)
_ROLES: Mapping[str, ChatRole] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_CALL = ("type", "id", "status", "call_id", "name", "namespace")
_READ = MappingProxyType(
    {
        "message": {"type", "role", "content", "id", "status"},
        "reasoning": {"type", "id", "status", "summary", "content", "encrypted_content"},
        "function_call": {*_CALL, "arguments"},
        "custom_tool_call": {*_CALL, "input"},
        "function_call_output": {"type", "id", "status", "call_id", "output"},
        "custom_tool_call_output": {"type", "id", "status", "call_id", "output"},
        "additional_tools": {"type", "id", "role", "tools"},
    }
)
"""Fields of items that are read, by their type."""
_LOGPROBS, _THOUGHTS = "message.output_text.logprobs", "reasoning.encrypted_content"
"""Values of `include` that are honoured."""
_RESULTS = ResultWords("call_id", "item of type function_call_output")
_SEALED = b"rlanything:"
"""Beginning of encrypted reasoning that was written here. It is not secret: it only travels through
clients that send back nothing else."""
_EARLIER = "previous_response_id"
MOST_KEPT = 4096
"""Number of latest responses that can be continued."""
_MOST_ITEMS = 8
"""Number of items per response that can be referred to, on average."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A response that can be continued."""

    turns: tuple[Turn, ...]
    """Its input, and the answer."""
    images: tuple[Image, ...]
    tools: tuple[Any, ...]
    """Tools that its input added."""


@dataclass(frozen=True, slots=True)
class _Own:
    """A request's data for its reply."""

    given: Mapping[str, Any]
    turns: tuple[Turn, ...]
    """The conversation, without the instructions."""
    tools: Mapping[str, OwnTool]
    """Its tools by the names of their functions."""
    added: tuple[Any, ...]
    """Tools that its input adds to `tools`."""
    include: frozenset[str]
    keeps: bool
    """Whether its response can be continued."""


class Responses(Dialect):
    """Responses; those of the episode can be continued."""

    path = "/v1/responses"
    counting_path = "/v1/responses/input_tokens"
    prompt = "input"
    headers = ("openai-beta", "x-codex-beta-features")
    renamed = MappingProxyType(
        {
            "messages.reasoning_content": "input.reasoning",
            "messages.content": "input.content",
            "messages.name": "input.name",
        }
    )

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._items: dict[str, Body] = {}
        """Output items by id, which requests may refer to."""

    def read(self, body: Any, images: bool, count_only: bool = False) -> Asked:
        given = given_fields(body, _HONOURED, _IGNORED)
        _refuse_formats(given)
        reader = TurnReader(images)
        earlier = self._earlier(given)
        read, added = self._turns(reader, given, bool(earlier.turns))
        turns = [*earlier.turns, *read]
        system = text_of(given, "instructions") if given.get("instructions") else ""
        first = [Turn("instructions", Message("system", system))] if system else []
        added = (*earlier.tools, *added)
        tools = ToolReader(reader)
        tools.add("tools", given.get("tools", []))
        tools.add("input.tools", [*added])
        include = _include(given, reader)
        _ignore_members(given, reader)
        keeps = flag_of(given, "store", True)
        return Asked(
            model=text_of(given, "model"),
            messages=in_order([*first, *turns], _RESULTS),
            tools=tools.chosen(given.get("tool_choice", "auto")),
            choices=choices(given),
            max_tokens=count_of(given, "max_output_tokens"),
            stream=flag_of(given, "stream"),
            one_call=not flag_of(given, "parallel_tool_calls", True),
            images=(*earlier.images, *reader.images),
            chat_template_kwargs=template_kwargs(given),
            count_only=count_only,
            ignored=tuple(sorted(reader.ignored | _unheeded(given))),
            kept=given if keeps else None,
            own=_Own(given, tuple(turns), tools.own, added, include, keeps),
        )

    def reply(self, asked: Asked, answers: Sequence[PolicyAnswer]) -> Body:
        [answer] = answers
        own: _Own = asked.own
        output = _output(answer, own)
        name = f"resp_{answer.number}"
        if own.keeps:
            self._keep(name, asked, answer, output)
        cut = _is_cut(answer)
        prompt, sampled = answer.completion.prompt_ids, answer.completion.token_ids
        choice = own.given.get("tool_choice", "auto")
        return {
            "id": name,
            "object": "response",
            # No clock: a replayed episode must see the same reply.
            "created_at": 0,
            "status": "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": own.given.get("instructions"),
            "max_output_tokens": asked.max_tokens,
            "metadata": own.given.get("metadata", {}),
            "model": asked.model,
            "output": output,
            "parallel_tool_calls": not asked.one_call,
            "previous_response_id": own.given.get(_EARLIER),
            "reasoning": {"effort": None, "summary": None},
            "store": own.keeps,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": choice,
            "tools": own.given.get("tools", []),
            "top_p": None,
            "truncation": "disabled",
            "usage": {
                "input_tokens": len(prompt),
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": len(sampled),
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": len(prompt) + len(sampled),
            },
        }

    def events(self, asked: Asked, answers: Sequence[PolicyAnswer]) -> bytes:
        body = self.reply(asked, answers)
        begun = {**body, "status": "in_progress", "incomplete_details": None}
        begun |= {"output": [], "usage": None}
        events: list[Body] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for index, item in enumerate(body["output"]):
            events += ({**event, "output_index": index} for event in _item_events(item))
        events.append({"type": f"response.{body['status']}", "response": body})
        return named_events({**e, "sequence_number": i} for i, e in enumerate(events))

    def failed(self, asked: Asked, refusal: Denial) -> bytes:
        error = self.error(refusal)["error"]
        response = {
            "id": "resp_failed",
            "object": "response",
            "created_at": 0,
            "status": "failed",
            "error": {"code": error["code"], "message": error["message"]},
            "incomplete_details": None,
            "model": asked.model,
            "output": [],
            "usage": None,
        }
        # OpenAI's client reads the first, Codex the second.
        ends = [
            {**error, "type": "error", "error": error},
            {"type": "response.failed", "response": response},
        ]
        return named_events({**e, "sequence_number": i} for i, e in enumerate(ends))

    def count(self, tokens: int) -> Body:
        return {"object": "response.input_tokens", "input_tokens": tokens}

    def _keep(self, name: str, asked: Asked, answer: PolicyAnswer, output: Sequence[Body]) -> None:
        said = answer.said
        message = Message("assistant", said.content, calls=said.calls, thought=thought_of(answer))
        ids = [item["call_id"] for item in output if "call_id" in item]
        earlier = (replace(turn, place=_EARLIER) for turn in asked.own.turns)
        turns = (*earlier, Turn(_EARLIER, message, ids))
        self._kept[name] = _Kept(turns, asked.images, asked.own.added)
        self._items |= {item["id"]: item for item in output}
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        while len(self._items) > _MOST_ITEMS * MOST_KEPT:
            del self._items[next(iter(self._items))]

    def _earlier(self, given: Mapping[str, Any]) -> _Kept:
        """Returns the response that a request continues."""
        if _EARLIER not in given:
            return _Kept((), (), ())
        name = text_of(given, _EARLIER)
        if name not in self._kept:
            raise Denial(
                f"previous_response_id {name!r} is no response of this episode that was kept: send "
                "the whole conversation as input, and leave out store=false to have it kept",
                _EARLIER,
                code="previous_response_not_found",
            )
        return self._kept[name]

    def _turns(
        self, reader: TurnReader, given: Mapping[str, Any], continues: bool
    ) -> tuple[list[Turn], list[Any]]:
        """Returns the turns of a request's input, and the tools among its items."""
        listed = given.get("input", [])
        if isinstance(listed, str):
            return [Turn("input", Message("user", listed))], []
        turns, tools = list[Turn](), list[Any]()
        for i, item in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(item, Mapping) and item.get("type") == "additional_tools":
                reader.unread("input", item, _READ["additional_tools"])
                tools += list_of(item, "tools")
                continue
            turn = self._turn(reader, f"input[{i}]", item)
            if turns and _belong_together(turns[-1].message, turn.message):
                turns[-1] = _together(turns[-1], turn)
            else:
                turns.append(turn)
        if not isinstance(listed, list) or not (turns or continues):
            raise Denial("input must be a text or a list of items that is not empty", "input")
        return turns, tools

    def _turn(self, reader: TurnReader, place: str, item: Any) -> Turn:
        if not isinstance(item, Mapping):
            raise misplaced(place, "an item must be a JSON object")
        kind = item.get("type") or "message"
        if kind == "item_reference":
            name = id_in(place, item, "id")
            if name not in self._items:
                raise misplaced(place, f"there is no item {name!r}: send the item itself")
            item, kind = self._items[name], self._items[name]["type"]
        if not isinstance(kind, str) or kind not in _READ:
            raise misplaced(place, f"items of type {kind!r:.80} are not supported: leave it out")
        reader.unread("input", item, _READ[kind])
        match kind:
            case "message":
                return _message(reader, place, item)
            case "reasoning":
                return Turn(place, Message("assistant", "", thought=_thought(reader, place, item)))
            case "function_call" | "custom_tool_call":
                call = read_call(reader, place, item)
                ids = (id_in(place, item, "call_id"),)
                return Turn(place, Message("assistant", "", calls=(call,)), ids)
            case _:
                text, images = _parts(reader, place, "output", item.get("output"))
                message = Message("tool", text, images)
                return Turn(place, message, answers=id_in(place, item, "call_id"))


def _belong_together(one: Message, other: Message) -> bool:
    """Returns whether two items are parts of one answer: an answer is reasoning, then text, then
    calls. Two messages without a call before them are two answers."""
    if not one.role == other.role == "assistant":
        return False
    begins = bool(other.thought) or not other.calls
    return bool(one.calls) or not (one.content and begins)


def _together(one: Turn, other: Turn) -> Turn:
    message = Message(
        "assistant",
        joined((one.message.content, other.message.content)),
        calls=(*one.message.calls, *other.message.calls),
        thought=joined((one.message.thought, other.message.thought)),
    )
    return Turn(one.place, message, (*one.ids, *other.ids))


def _message(reader: TurnReader, place: str, item: Mapping[str, Any]) -> Turn:
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise misplaced(place, f"role must be one of {', '.join(_ROLES)}")
    text, images = _parts(reader, place, "content", item.get("content"))
    return Turn(place, Message(_ROLES[role], text, images))


def _parts(reader: TurnReader, place: str, name: str, value: Any) -> tuple[str, tuple[str, ...]]:
    """Returns the text of a list of parts, and the names of its images. `name`: their field."""
    if isinstance(value, str):
        return value, ()
    if not isinstance(value, list) or not all(isinstance(part, Mapping) for part in value):
        raise misplaced(place, f"{name} must be a text or a list of parts")
    texts, names = list[str](), list[str]()
    for part in value:
        kind = part.get("type")
        if kind in _TEXTS and isinstance(part.get("text"), str):
            texts.append(part["text"])
            read = {"type", "text", "logprobs"}
        elif kind == "refusal" and isinstance(part.get("refusal"), str):
            texts.append(part["refusal"])
            read = {"type", "refusal"}
        elif kind == "input_image" and part.get("image_url") is not None:
            names.append(reader.image_at(place, part["image_url"]))
            read = {"type", "image_url"}
        else:
            raise misplaced(place, f"parts of type {kind!r:.80} are not supported: send text")
        reader.unread(f"input.{name}", part, read)
    return "\n".join(texts), tuple(names)


def _thought(reader: TurnReader, place: str, item: Mapping[str, Any]) -> str:
    """Returns the reasoning of an item: its content, else what was sealed here, else its summary;
    the others have no effect."""
    content, _ = _parts(reader, place, "content", item.get("content") or "")
    summary, _ = _parts(reader, place, "summary", item.get("summary") or "")
    sealed = text_in(place, item, "encrypted_content")
    opened = _opened(sealed)
    thought = content or opened or summary
    if summary not in ("", thought):
        reader.ignore("input", ["summary"])
    if sealed and (not opened or opened != thought):
        reader.ignore("input", ["encrypted_content"])
    return thought


def _seal(thought: str) -> str:
    return base64.b64encode(_SEALED + thought.encode("utf-8", "surrogatepass")).decode()


def _opened(sealed: str) -> str:
    """Returns reasoning that was sealed here; "" for another server's."""
    try:
        data = base64.b64decode(sealed, validate=True)
        return data.removeprefix(_SEALED).decode() if data.startswith(_SEALED) else ""
    except (binascii.Error, ValueError):
        return ""


def _refuse_formats(given: Mapping[str, Any]) -> None:
    form = members(given, "text", {"format", "verbosity"}).get("format", {"type": "text"})
    kind = form.get("type") if isinstance(form, Mapping) else form
    if kind != "text":
        raise unforceable("text.format", kind)
    if given.get("top_logprobs"):
        raise Denial("top_logprobs: only sampled tokens have log-probs here", "top_logprobs")
    if flag_of(given, "background"):
        raise unsupported("background")


def _include(given: Mapping[str, Any], reader: TurnReader) -> frozenset[str]:
    """Returns the further parts of the reply that are asked for."""
    listed = given.get("include", [])
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise Denial("include must be a list of texts", "include")
    honoured = frozenset(listed) & {_LOGPROBS, _THOUGHTS}
    reader.ignore("include", {*listed} - honoured)
    return honoured


def _ignore_members(given: Mapping[str, Any], reader: TurnReader) -> None:
    """Adds the options without effect that are inside of others."""
    reader.ignore("text", members(given, "text", {"format", "verbosity"}).keys() - {"format"})
    if members(given, "stream_options", {"include_obfuscation"}).get("include_obfuscation"):
        reader.ignore("stream_options", ["include_obfuscation"])


def _unheeded(given: Mapping[str, Any]) -> set[str]:
    names = given.keys() & _IGNORED
    return names - {"truncation"} if given.get("truncation") == "disabled" else names


def _is_cut(answer: PolicyAnswer) -> bool:
    return answer.completion.stop_reason == "length" and not answer.said.calls


def _output(answer: PolicyAnswer, own: _Own) -> list[Body]:
    """Returns the items of an answer."""
    said, number, include = answer.said, answer.number, own.include
    items: list[Body] = []
    if thought := thought_of(answer):
        part = {"type": "reasoning_text", "text": thought}
        item = {"id": f"rs_{number}", "type": "reasoning", "summary": [], "content": [part]}
        items.append(
            {**item, "encrypted_content": _seal(thought)} if _THOUGHTS in include else item
        )
    if said.content or not said.calls:
        logprobs = finite_json(token_logprobs(answer, [])) if _LOGPROBS in include else []
        part = {"type": "output_text", "text": said.content, "annotations": []}
        items.append(
            {
                "id": f"msg_{number}",
                "type": "message",
                "role": "assistant",
                "status": "incomplete" if _is_cut(answer) else "completed",
                "content": [{**part, "logprobs": logprobs}],
            }
        )
    return [*items, *call_items(said.calls, own.tools, number)]


def _item_events(item: Body) -> list[Body]:
    """Returns the events of an output item, without their numbers."""
    place = {"item_id": item["id"]}
    if "call_id" in item:
        begun = {**item, "status": "in_progress"}
        begun |= {name: "" for name in ("arguments", "input") if name in item}
        inner = call_events(item)
    else:
        [part] = item["content"]
        begun = {**item, "content": []}
        begun |= {"status": "in_progress"} if "status" in item else {}
        place |= {"content_index": 0}
        kind = f"response.{part['type']}"
        more = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
        empty = {**part, "text": "", **dict.fromkeys(more, ())}
        tokens = pieces(more.get("logprobs", []))
        inner = [
            {"type": "response.content_part.added", **place, "part": empty},
            *(
                {"type": f"{kind}.delta", **place, "delta": text or "", **dict.fromkeys(more, some)}
                for text, some in zip_longest(pieces(part["text"]), tokens, fillvalue=())
            ),
            {"type": f"{kind}.done", **place, "text": part["text"], **more},
            {"type": "response.content_part.done", **place, "part": part},
        ]
    added = {"type": "response.output_item.added", "item": begun}
    return [added, *inner, {"type": "response.output_item.done", "item": item}]
