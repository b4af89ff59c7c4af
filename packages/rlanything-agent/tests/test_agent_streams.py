"""A stream whose answer takes its time shows signs of life; the clients are OpenAI's and
Anthropic's own."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from helpers.agents import SECONDS, Narrow, Scripted, Waiting, claude, post, won
from helpers.calling import call
from rlanything.records import Task
from rlanything_agent import late
from rlanything_agent.endpoint import endpoint

CHAT: Any = [{"role": "user", "content": "Well?"}]


async def streamed_chat(client: Any, chat: Any) -> str:
    events = await client.chat.completions.create(model="policy", messages=chat, stream=True)
    return "".join([event.choices[0].delta.content or "" async for event in events])


async def streamed_message(client: Any, chat: Any) -> str:
    async with (
        claude(client) as own,
        own.messages.stream(model="policy", messages=chat, max_tokens=9) as events,
    ):
        return await events.get_final_text()


async def streamed_response(client: Any, chat: Any) -> str:
    async with client.responses.stream(model="policy", input=chat) as events:
        return (await events.get_final_response()).output_text


STREAMED = [streamed_chat, streamed_message, streamed_response]
BODIES = {
    "chat/completions": {"messages": CHAT, "temperature": 0.5},
    "messages": {"messages": CHAT, "max_tokens": 9, "temperature": 0.5},
    "responses": {"input": CHAT, "temperature": 0.5},
}
SIGNS = {
    "chat/completions": ": keep-alive\n\n",
    "messages": 'event: ping\ndata: {"type": "ping"}\n\n',
    "responses": ": keep-alive\n\n",
}


def test_a_stream_shows_signs_of_life_until_its_answer_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late, "SECONDS", 0.1)
    policy = Waiting()

    async def solve(task: Task, client: Any) -> bool:
        for number, stream in enumerate(STREAMED):
            policy.go.clear()
            threading.Timer(1.5, policy.go.set).start()
            address = str(client.base_url)  # over the network, in pieces
            networked = openai.AsyncOpenAI(base_url=address, api_key=client.api_key)
            async with networked:
                assert await stream(networked, CHAT) == f"answer {number}"
        for path, body in BODIES.items():
            policy.go.clear()
            threading.Timer(1.5, policy.go.set).start()
            reply = await post(client, path, {"model": "policy", "stream": True, **body})
            assert reply.text.startswith(SIGNS[path] * 2)
            after = reply.text.replace(SIGNS[path], "")
            assert after.startswith(": x-rlanything-ignored: temperature\n\n")
            assert reply.headers["x-rlanything-ignored"] == "temperature"
        return True

    says = [f"answer {number}" for number in range(3)]
    assert len(won(solve, *says, policy=policy).steps) == 6


LONG = " ".join(["a word"] * 100)
LOOK: Any = {"type": "function", "function": {"name": "look", "parameters": {}}}


async def chat_pieces(client: Any) -> tuple[list[str], list[str]]:
    asking: dict[str, Any] = {"model": "policy", "messages": CHAT, "tools": [LOOK]}
    async with client.chat.completions.stream(**asking, logprobs=True) as events:
        seen = [event async for event in events]
        final = (await events.get_final_completion()).choices[0]
    [call] = final.message.tool_calls
    tokens = [each.token for each in final.logprobs.content]
    assert tokens == [f"token_id:{i}" for i in range(300)]
    assert (final.message.content, json.loads(call.function.arguments)) == (LONG, {"at": LONG})
    ends = "content.delta", "tool_calls.function.arguments.delta"
    said, called = ([event for event in seen if event.type == kind] for kind in ends)
    return [event.delta for event in said], [event.arguments_delta for event in called]


async def message_pieces(client: Any) -> tuple[list[str], list[str]]:
    tools: Any = [{"name": "look", "input_schema": {"type": "object"}}]
    async with (
        claude(client) as own,
        own.messages.stream(model="policy", messages=CHAT, max_tokens=9, tools=tools) as events,
    ):
        seen = [event async for event in events]
        final: Any = await events.get_final_message()
    text, call = final.content
    assert (text.text, call.input) == (LONG, {"at": LONG})
    said = [event.text for event in seen if event.type == "text"]
    return said, [event.partial_json for event in seen if event.type == "input_json"]


async def response_pieces(client: Any) -> tuple[list[str], list[str]]:
    tools: Any = [{"type": "function", "name": "look", "parameters": {}}]
    async with client.responses.stream(model="policy", input=CHAT, tools=tools) as events:
        seen = [event async for event in events]
        final = await events.get_final_response()
    call = final.output[-1]
    assert (final.output_text, json.loads(call.arguments)) == (LONG, {"at": LONG})
    kinds = "response.output_text.delta", "response.function_call_arguments.delta"
    said, called = ([event.delta for event in seen if event.type == kind] for kind in kinds)
    return said, called


def test_the_official_clients_put_a_long_answer_together_from_pieces() -> None:
    class Long(Scripted):
        def respond(self, episodes: Any, seeds: Any) -> Any:
            answers = super().respond(episodes, seeds)
            tokens = {"token_ids": tuple(range(300)), "logprobs": (-1.0,) * 300}
            return [replace(answer, **tokens) for answer in answers]

    async def solve(task: Task, client: Any) -> bool:
        for streamed in (chat_pieces, message_pieces, response_pieces):
            text, arguments = await streamed(client)
            assert "".join(text) == LONG
            assert json.loads("".join(arguments)) == {"at": LONG}
            assert min(len(text), len(arguments)) > 4
            assert max(map(len, [*text, *arguments])) < 200
        return True

    says = LONG + call("look", at=LONG)
    won(solve, *[says] * 3, policy=Long())


class Late(Narrow):
    """Refuses a chat that is too long, after a while."""

    def respond(self, episodes: Any, seeds: Any) -> Any:
        threading.Event().wait(1.5)
        return super().respond(episodes, seeds)


def test_a_refusal_after_signs_of_life_has_the_form_of_its_dialect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late, "SECONDS", 0.1)
    long: Any = [{"role": "user", "content": "a long one"}]

    async def solve(task: Task, client: Any) -> bool:
        for stream in (streamed_chat, streamed_response):
            with pytest.raises(openai.APIError, match="maximum context length") as refused:
                await stream(client, long)
            assert refused.value.code == "context_length_exceeded"
        with pytest.raises(anthropic.APIStatusError, match="prompt is too long: "):
            await streamed_message(client, long)
        body = {"model": "policy", "stream": True, "input": long}
        events = (await post(client, "responses", body)).text
        assert '"type": "response.failed"' in events
        assert await streamed_chat(client, CHAT) == "yes"
        return True

    assert len(won(solve, policy=Late()).steps) == 1


def test_a_client_that_hangs_up_on_signs_of_life_withdraws_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late, "SECONDS", 0.1)
    policy = Waiting()

    async def solve(task: Task, client: Any) -> bool:
        body = {"model": "policy", "messages": CHAT, "stream": True}
        own = httpx2.AsyncClient(trust_env=False, timeout=SECONDS)
        key = {"authorization": f"Bearer {client.api_key}"}
        address, sent = f"{client.base_url}chat/completions", json.dumps(body).encode()
        async with own, own.stream("POST", address, content=sent, headers=key) as reply:
            async for _ in reply.aiter_text():
                break
        conversation, _ = endpoint()._doors[client.api_key]
        while any(exchange.waiting for exchange in conversation._all()):  # not noticed yet
            await asyncio.sleep(0.05)
        policy.go.set()
        again = await post(client, "chat/completions", body)
        return "answer 0" in again.text

    says = [f"answer {number}" for number in range(3)]
    assert len(won(solve, *says, policy=policy).steps) == 1
