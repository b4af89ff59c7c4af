"""Bodies of replies in the format of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from rlanything.domains.thoughts import bare_thought
from rlanything.strict_json import finite_json
from rlanything_agent.conversation import PolicyAnswer
from rlanything_agent.reading import Asked, Denial

Body = dict[str, Any]
_MOST_NAMES, _NAME_CHARACTERS = 32, 100
"""Largest number of field names in a header, and the longest name in characters."""


def completion_body(asked: Asked, answers: Sequence[PolicyAnswer]) -> Body:
    """Returns a `chat.completion`."""
    body = {
        **_head("chat.completion", asked, answers),
        "choices": [
            {
                "index": index,
                "message": _message(answer),
                "finish_reason": _finish(answer),
                "logprobs": _logprobs(answer) if asked.logprobs else None,
            }
            for index, answer in enumerate(answers)
        ],
        "usage": _usage(answers),
    }
    return finite_json(body)


def ignored_fields(asked: Asked, answers: Sequence[PolicyAnswer]) -> str:
    """Returns the request's fields that had no effect, in the form of a header value."""
    unread = {name for answer in answers for name in answer.completion.unread}
    names = sorted({*asked.ignored, *unread})
    # Some of the names come from the program.
    said = [quote(name[:_NAME_CHARACTERS], safe=".[]_-") for name in names[:_MOST_NAMES]]
    return ", ".join([*said, "..."] if len(names) > _MOST_NAMES else said)


def event_stream(asked: Asked, answers: Sequence[PolicyAnswer]) -> bytes:
    """Returns the events of a streamed reply. Each answer is sent as one piece once it is
    complete."""
    head = _head("chat.completion.chunk", asked, answers)
    chunks: list[Body] = []
    for index, answer in enumerate(answers):
        message = _message(answer)
        calls = [{"index": i, **call} for i, call in enumerate(message.get("tool_calls", []))]
        delta = {**message, "tool_calls": calls} if calls else message
        logprobs = _logprobs(answer) if asked.logprobs else None
        said = {"index": index, "delta": delta, "finish_reason": None, "logprobs": logprobs}
        end = {"index": index, "delta": {}, "finish_reason": _finish(answer), "logprobs": None}
        chunks += [{**head, "choices": [said]}, {**head, "choices": [end]}]
    if asked.stream_usage:
        chunks.append({**head, "choices": [], "usage": _usage(answers)})
    events = [json.dumps(finite_json(chunk), ensure_ascii=False) for chunk in chunks]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


def error_body(refusal: Denial) -> Body:
    """Returns the body of an error."""
    kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": refusal.message,
            "type": "requests" if refusal.status == 429 else kind,
            "param": refusal.param,
            "code": refusal.code,
        }
    }


def model_list(names: Sequence[str]) -> Body:
    """Returns a list of models."""
    models = [
        {"id": name, "object": "model", "created": 0, "owned_by": "rlanything"} for name in names
    ]
    return {"object": "list", "data": models}


def _head(kind: str, asked: Asked, answers: Sequence[PolicyAnswer]) -> Body:
    # Derived from the answer's number, not from a clock: a replayed episode must see the same id.
    name = f"chatcmpl-{answers[0].number}"
    return {"id": name, "object": kind, "created": 0, "model": asked.model}


def _message(answer: PolicyAnswer) -> Body:
    said = answer.said
    completion = answer.completion
    body: Body = {"role": "assistant", "content": said.content or (None if said.calls else "")}
    if thought := bare_thought(completion.text[: completion.answer_at]):
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


def _logprobs(answer: PolicyAnswer) -> Body:
    """Returns the log-probs of the sampled tokens. Tokens are named by their ids, as vLLM does on
    request: their texts need not concatenate to the answer's text."""
    sampled = zip(answer.completion.token_ids, answer.completion.logprobs, strict=True)
    return {
        "content": [
            {"token": f"token_id:{token}", "logprob": logprob, "bytes": None, "top_logprobs": []}
            for token, logprob in sampled
        ],
        "refusal": None,
    }


def _usage(answers: Sequence[PolicyAnswer]) -> Body:
    asked = len(answers[0].completion.prompt_ids)
    sampled = sum(len(answer.completion.token_ids) for answer in answers)
    return {
        "prompt_tokens": asked,
        "completion_tokens": sampled,
        "total_tokens": asked + sampled,
    }
