"""The same conversation in three dialects is the same episode, token by token. The clients are
OpenAI's and Anthropic's own."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import anthropic
import openai
import pytest

from helpers.agents import SECONDS, Narrow, Scripted, Waiting, agent, ask, claude, played, post, won
from helpers.fake_endpoint import KEY, MODEL, FakeEndpoint
from helpers.scripted import ScriptedEngine
from helpers.tiny import tiny_model
from rlanything.domains.requests import PromptTokens, RequestsRefused
from rlanything.engines.base import Sampling
from rlanything.records import Task, Trajectory
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.policy import LanguagePolicy

UNREAD = ("messages.reasoning_content",)
TEMPLATE = (
    "{% if tools %}<|system|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|end|>"
    "{% endif %}{% for message in messages %}"
    "{% if message.role == 'tool' %}<|user|>[{{ message.content }}]<|end|>"
    "{% else %}<|{{ message.role }}|>"
    "{% if message.reasoning_content %}<think>\n{{ message.reasoning_content }}\n</think>\n\n"
    "{% endif %}{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    '<tool_call>{"name": "{{ call.function.name }}", '
    '"arguments": {{ call.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}<|end|>{% endif %}{% endfor %}<|assistant|>"
)
THOUGHT = "<think>\ntwo drawers\n</think>\n\n"
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}}
WORDS = ("cup", "key")


def call(word: str) -> str:
    said = json.dumps({"name": "look", "arguments": {"word": word}})
    return f"<tool_call>{said}</tool_call>"


SAYS = (f"{THOUGHT}I look.{call(WORDS[0])}{call(WORDS[1])}", "Both are there.", "Yes.")


async def in_chat(client: Any, streams: bool) -> list[str]:
    function = {"name": "look", "description": "Opens it.", "parameters": SCHEMA}
    options: dict[str, Any] = {
        "model": "policy",
        "tools": [{"type": "function", "function": function}],
    }
    chat: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Find both."},
    ]
    texts: list[str] = []

    async def step() -> Any:
        if streams:
            async with client.chat.completions.stream(messages=chat, **options) as events:
                reply = await events.get_final_completion()
        else:
            reply = await client.chat.completions.create(messages=chat, **options)
        message = reply.choices[0].message
        texts.append(message.content)
        keys = ("role", "content", "tool_calls", "reasoning_content")
        said = message.model_dump(exclude_none=True)
        chat.append({key: said[key] for key in keys if key in said})
        return message

    one, other = (await step()).tool_calls
    for each in (other, one):  # the later result first
        word = json.loads(each.function.arguments)["word"]
        chat.append({"role": "tool", "tool_call_id": each.id, "content": f"a {word}"})
    await step()
    chat.append({"role": "user", "content": "Sure?"})
    await step()
    return texts


async def in_messages(client: Any, streams: bool) -> list[str]:
    options: dict[str, Any] = {
        "model": "policy",
        "system": "Be brief.",
        "max_tokens": 4096,
        "tools": [{"name": "look", "description": "Opens it.", "input_schema": SCHEMA}],
    }
    chat: list[Any] = [{"role": "user", "content": "Find both."}]
    texts: list[str] = []

    async with claude(client) as own:

        async def step() -> Any:
            if streams:
                async with own.messages.stream(messages=chat, **options) as events:
                    message = await events.get_final_message()
            else:
                message = await own.messages.create(messages=chat, **options)
            texts.append("".join(block.text for block in message.content if block.type == "text"))
            chat.append({"role": "assistant", "content": message.content})
            return message

        message = await step()
        assert message.stop_reason == "tool_use"
        thinking, _, one, other = message.content
        assert (thinking.type, thinking.thinking) == ("thinking", "two drawers")
        results = [
            {"type": "tool_result", "tool_use_id": use.id, "content": f"a {use.input['word']}"}
            for use in (other, one)
        ]
        chat.append({"role": "user", "content": results})
        assert (await step()).stop_reason == "end_turn"
        chat.append({"role": "user", "content": [{"type": "text", "text": "Sure?"}]})
        await step()
    return texts


async def in_responses(client: Any, streams: bool, continues: bool = False) -> list[str]:
    options: dict[str, Any] = {
        "model": "policy",
        "instructions": "Be brief.",
        "tools": [
            {"type": "function", "name": "look", "description": "Opens it.", "parameters": SCHEMA}
        ],
    }
    items: list[Any] = [{"role": "user", "content": "Find both."}]
    previous: dict[str, Any] = {}
    texts: list[str] = []

    async def step() -> Any:
        given = {**options, **previous, "input": items}
        if streams:
            async with client.responses.stream(**given) as events:
                reply = await events.get_final_response()
        else:
            reply = await client.responses.create(**given)
        texts.append(reply.output_text)
        assert reply.status == "completed"
        if continues:
            items.clear()
            previous["previous_response_id"] = reply.id
        else:
            items.extend(item.model_dump(exclude_none=True) for item in reply.output)
        return reply

    reasoning, _, one, other = (await step()).output
    assert reasoning.content[0].text == "two drawers"
    for each in (other, one):
        word = json.loads(each.arguments)["word"]
        result = {"type": "function_call_output", "call_id": each.call_id, "output": f"a {word}"}
        items.append(result)
    await step()
    items.append({"type": "message", "role": "user", "content": "Sure?"})
    await step()
    return texts


async def in_continued_responses(client: Any, streams: bool) -> list[str]:
    return await in_responses(client, streams, continues=True)


Conversation = Callable[[Any, bool], Awaitable[list[str]]]
TOLD: list[Conversation] = [in_chat, in_messages, in_responses, in_continued_responses]


def recorded(conversation: Conversation, streams: bool) -> tuple[Trajectory, list[str]]:
    """The episode of a conversation with a model whose template keeps thoughts and calls."""
    model = tiny_model()
    model.tokenizer.chat_template = TEMPLATE
    engine = ScriptedEngine(model, lambda prompt, seed: SAYS[prompt.count("<|assistant|>") - 1])

    async def solve(task: Task, client: Any) -> bool:
        return await conversation(client, streams) == ["I look.", *SAYS[1:]]

    domain = agent(solve, timeout_seconds=SECONDS)
    chat_model = LocalChatModel(model, engine)
    policy = LanguagePolicy(chat_model, domain, Sampling(1.0, 64), "free", 0)
    rollouts = played(domain, policy=policy, timeout=2 * SECONDS)
    assert not rollouts.failures, rollouts.failures[0].reason
    assert not rollouts.crashes, rollouts.crashes[0].reason
    return rollouts.trajectories[0], engine.prompts


def test_a_conversation_is_the_same_episode_in_every_dialect_and_streamed() -> None:
    first, prompts = recorded(in_chat, False)
    assert first.outcome == 1
    tokens = [step.completion for step in first.steps]
    for earlier, later in pairwise(tokens):
        assert later.prompt_ids[: len(earlier.tokens)] == earlier.tokens
    assert [step.response for step in first.steps] == [SAYS[0].removeprefix(THOUGHT), *SAYS[1:]]
    assert "<|user|>[a cup]<|end|><|user|>[a key]<|end|>" in prompts[1]
    assert f"<|assistant|>{SAYS[0]}<|end|>" in prompts[1]
    for conversation in TOLD:
        for streams in (False, True):
            assert recorded(conversation, streams) == (first, prompts), (conversation, streams)


def test_an_answer_that_is_cut_and_what_is_ignored_are_named_in_every_dialect() -> None:
    class Cut(Scripted):
        def respond(self, episodes: Any, seeds: Any) -> Any:
            said = super().respond(episodes, seeds)
            return [replace(each, stop_reason="length", unread=UNREAD) for each in said]

    async def solve(task: Task, client: Any) -> bool:
        async with claude(client) as own:
            raw = await own.messages.with_raw_response.create(
                model="policy",
                max_tokens=9,
                messages=[{"role": "user", "content": "Hi"}],
                extra_body={"temperature": 0.5},
                thinking={"type": "enabled", "budget_tokens": 1024},
                extra_headers={"anthropic-beta": "context-1m"},
            )
            assert raw.headers["x-rlanything-ignored"] == (
                "anthropic-beta, messages.content.thinking, temperature, thinking"
            )
            message = await raw.parse()
            assert (message.stop_reason, message.usage.input_tokens) == ("max_tokens", 3)
        reply = await client.responses.with_raw_response.create(
            model="policy",
            input="Hi",
            reasoning={"effort": "low"},
            text={"verbosity": "low"},
            include=["reasoning.encrypted_content", "web_search_call.results"],
        )
        assert reply.headers["x-rlanything-ignored"] == (
            "include.web_search_call.results, input.reasoning, reasoning, text.verbosity"
        )
        said = reply.parse()
        assert (said.status, said.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert said.usage.output_tokens == 3
        async with client.responses.stream(model="policy", input="Hi") as events:
            kinds = [event.type async for event in events]
        return kinds[0] == "response.created" and kinds[-1] == "response.incomplete"

    won(solve, "yes", policy=Cut())


def test_tokens_are_counted_by_the_template_and_are_no_step() -> None:
    model = tiny_model()
    model.tokenizer.chat_template = TEMPLATE
    engine = ScriptedEngine(model, lambda prompt, seed: "yes")

    async def solve(task: Task, client: Any) -> bool:
        chat: Any = [{"role": "user", "content": "Hi"}]
        tools: Any = [{"name": "look", "input_schema": SCHEMA}]
        async with claude(client) as own:
            short = await own.messages.count_tokens(model="policy", messages=chat)
            long = await own.messages.count_tokens(model="policy", messages=chat, tools=tools)
            said = await own.messages.create(model="policy", messages=chat, max_tokens=9)
        again = await client.responses.input_tokens.count(model="policy", input="Hi")
        assert long.input_tokens > short.input_tokens
        return short.input_tokens == said.usage.input_tokens == again.input_tokens

    domain = agent(solve, timeout_seconds=SECONDS)
    policy = LanguagePolicy(LocalChatModel(model, engine), domain, Sampling(1.0, 64), "free", 0)
    [trajectory] = played(domain, policy=policy, timeout=2 * SECONDS).trajectories
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 1)
    count = pickle.loads(pickle.dumps(PromptTokens(12)))  # on its way to a worker
    assert (type(count), int(count)) == (PromptTokens, 12)


class Counting(Scripted):
    """Counts the characters of a prompt, or answers."""

    def respond(self, episodes: Any, seeds: Any) -> Any:
        counts = {
            i: PromptTokens(len(episode.observation.request.messages[0].content))
            for i, episode in enumerate(episodes)
            if episode.observation.request.count_only
        }
        if counts:
            raise RequestsRefused(counts)
        return super().respond(episodes, seeds)


async def counts(task: Task, client: Any) -> bool:
    path = "messages/count_tokens"
    body = {"model": "policy", "messages": [{"role": "user", "content": "Hi"}]}
    for _ in range(1 if task.data["says"] == ["once"] else 99):
        assert (await post(client, path, body)).json() == {"input_tokens": 2}
    return True


def test_a_program_that_only_counts_tokens_asked_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlanything_agent.environment.MOST_COUNTED", 3)
    domain = agent(counts, ["once"], ["for ever"], timeout_seconds=SECONDS)
    rollouts = played(domain, policy=Counting(), timeout=2 * SECONDS)
    assert [failure.reason for failure in rollouts.failures] == [
        "its agent had tokens counted and asked nothing before it ended",
        "its agent had tokens counted 3 times in a row",
    ]


def test_errors_have_the_form_of_their_dialect() -> None:
    async def solve(task: Task, client: Any) -> bool:
        chat: Any = [{"role": "user", "content": "a long one"}]
        hi: Any = [{"role": "user", "content": "Hi"}]
        async with claude(client) as own:
            create = own.messages.create
            with pytest.raises(anthropic.BadRequestError, match="prompt is too long: ") as refused:
                await create(model="policy", messages=chat, max_tokens=9)
            assert refused.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]
            with pytest.raises(anthropic.NotFoundError, match="no model 'claude-9': ask policy"):
                await create(model="claude-9", messages=hi, max_tokens=9)
            long: Any = [{"role": "user", "content": "Hi" * 2**22}]
            with pytest.raises(anthropic.APIStatusError, match="more than 8,388,608") as large:
                await create(model="policy", messages=long, max_tokens=9)
            assert (large.value.status_code, large.value.type) == (413, "request_too_large")
            with pytest.raises(anthropic.AuthenticationError, match="unknown key") as unknown:
                await own.with_options(api_key="sk-guess").messages.create(
                    model="policy", messages=hi, max_tokens=9
                )
            assert unknown.value.type == "authentication_error"
            assert [model.id async for model in own.models.list()] == ["policy"]
        with pytest.raises(openai.BadRequestError, match="maximum context length") as too_long:
            await client.responses.create(model="policy", input="a long one")
        assert (too_long.value.code, too_long.value.param) == ("context_length_exceeded", "input")
        with pytest.raises(openai.BadRequestError, match="is no response of this") as missing:
            await client.responses.create(model="policy", input="x", previous_response_id="resp_9")
        assert missing.value.code == "previous_response_not_found"
        unkept = await client.responses.create(model="policy", input="Hi", store=False)
        with pytest.raises(openai.BadRequestError, match="is no response of this"):
            await client.responses.create(model="policy", input="x", previous_response_id=unkept.id)
        for path in ("messages", "messages/count_tokens", "responses", "responses/input_tokens"):
            for body in (b"{", b'{"model": NaN}', b"[1]", b'"x"', b"[" * 99_999, b"\xff", b""):
                reply = await post(client, path, body)
                said = reply.json()["error"]["message"]
                assert (reply.status_code, "\n" in said) == (400, False), (path, body)
                assert (reply.json().get("type") == "error") is path.startswith("messages")
        return True

    assert len(won(solve, policy=Narrow()).steps) == 1


def test_retries_of_a_timed_out_client_are_one_step() -> None:
    policy = Waiting()

    async def solve(task: Task, client: Any) -> bool:
        threading.Timer(1.5, policy.go.set).start()
        async with claude(client, timeout=1.0, max_retries=9) as own:
            chat: Any = [{"role": "user", "content": "Well?"}]
            reply = await own.messages.create(model="policy", messages=chat, max_tokens=9)
        assert reply.content[0].model_dump()["text"] == "one"
        body = {"model": "policy", "input": "Well?"}
        key = {"idempotency-key": "k"}
        first, second = [await post(client, "responses", body, **key) for _ in range(2)]
        return first.json() == second.json() and first.json()["id"] == "resp_1"

    assert len(won(solve, "one", "two", "three", policy=policy).steps) == 2


def test_a_response_goes_on_from_items_of_the_episode_and_from_sealed_thoughts() -> None:
    policy = Scripted()

    async def solve(task: Task, client: Any) -> bool:
        first = await client.responses.create(model="policy", input="One?")
        reference = {"type": "item_reference", "id": first.output[0].id}
        user = {"role": "user", "content": [{"type": "input_text", "text": "One?"}]}
        again = {"role": "user", "content": "Two?"}
        await client.responses.create(model="policy", input=[user, reference, again])
        second = await client.responses.create(
            model="policy", input="Two?", previous_response_id=first.id, instructions="New."
        )
        third = await client.responses.create(
            model="policy", input="Three?", previous_response_id=second.id
        )
        with pytest.raises(openai.BadRequestError, match="no item 'msg_77'"):
            await client.responses.create(
                model="policy", input=[{"type": "item_reference", "id": "msg_77"}]
            )
        return third.previous_response_id == second.id

    won(solve, "1", "2", "3", "4", policy=policy)
    texts = [[m.content for m in request.messages] for request in policy.requests]
    assert texts == [
        ["One?"],
        ["One?", "1", "Two?"],
        ["New.", "One?", "1", "Two?"],
        ["One?", "1", "Two?", "3", "Three?"],
    ]
    assert [request.follows for request in policy.requests] == [None, 0, None, None]


def test_what_a_response_goes_on_from_counts_for_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlanything_agent.endpoint.MOST_BYTES", 1000)

    async def solve(task: Task, client: Any) -> bool:
        first = await client.responses.create(model="policy", input="x" * 600)
        with pytest.raises(openai.APIStatusError, match="the conversation has more than 1,000"):
            await client.responses.create(
                model="policy", input="x" * 600, previous_response_id=first.id
            )
        return True

    won(solve)


def test_a_helper_answers_in_the_dialect_it_is_asked_in(fake: FakeEndpoint) -> None:
    seen: list[tuple[str, Any, Any]] = []

    def note(handler: Any) -> None:
        names = ("Authorization", "x-api-key")
        seen.append((handler.path, *(handler.headers[name] for name in names)))
        handler.reply(200, json.dumps({"id": "mine"}))

    fake.paths = ("/v1/messages", "/v1/responses")
    fake.faults.extend([note, note])

    async def solve(task: Task, client: Any) -> bool:
        body = {"model": "reviewer", "messages": []}
        one = await post(client, "messages", body)
        other = await post(client, "responses", body)
        await ask(client, "Hi")
        return one.json() == other.json() == {"id": "mine"}

    won(solve, helpers={"reviewer": {"url": fake.url, "model": MODEL, "key_variable": "MY_KEY"}})
    assert [(path.rsplit("/", 1)[1], *keys) for path, *keys in seen] == [
        ("messages", None, KEY),
        ("responses", f"Bearer {KEY}", None),
    ]


def test_a_helper_that_sends_requests_on_gets_no_key_to_another_host(fake: FakeEndpoint) -> None:
    elsewhere = "http://other.example/v1/messages"
    fake.paths = ("/v1/messages",)
    fake.faults.append(lambda handler: handler.reply(307, "", location=elsewhere))

    async def solve(task: Task, client: Any) -> bool:
        reply = await post(client, "messages", {"model": "reviewer", "messages": []})
        await ask(client, "Hi")
        return reply.status_code == 502 and f"sends requests on to {elsewhere}" in reply.text

    won(solve, helpers={"reviewer": {"url": fake.url, "model": MODEL, "key_variable": "MY_KEY"}})


def test_logprobs_and_sealed_thoughts_come_where_they_are_asked_for() -> None:
    async def solve(task: Task, client: Any) -> bool:
        reply = await client.responses.create(
            model="policy", input="Hi", include=["message.output_text.logprobs"]
        )
        entries = reply.output[0].content[0].logprobs
        assert [entry.token for entry in entries] == [f"token_id:{byte}" for byte in b"yes"]
        return [entry.logprob for entry in entries] == [-0.5] * 3

    won(solve)


def test_custom_tools_and_those_of_namespaces_are_functions_to_the_policy() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "+"'}
    patch = {"type": "custom", "name": "patch", "description": "Edits.", "format": grammar}
    close = {"type": "function", "name": "close", "parameters": SCHEMA}
    agents = {"type": "namespace", "name": "agents", "description": "Helpers.", "tools": [close]}
    more = {"type": "additional_tools", "role": "developer", "tools": [{**patch, "name": "more"}]}
    tools = [patch, agents, {"type": "web_search"}, {"type": "tool_search", "execution": "client"}]
    says = (
        '<tool_call>{"name": "patch", "arguments": {"input": "+\\n"}}</tool_call>'
        '<tool_call>{"name": "agents__close", "arguments": {"word": "a"}}</tool_call>',
        '<tool_call>{"name": "more", "arguments": {"word": "a"}}</tool_call>',
        "Done.",
    )

    async def solve(task: Task, client: Any) -> bool:
        chat: list[Any] = [more, {"role": "user", "content": "Go."}]
        asking: dict[str, Any] = {"model": "policy", "tools": tools, "store": False}
        raw = await client.responses.with_raw_response.create(
            input=chat, extra_headers={"x-codex-beta-features": "more"}, **asking
        )
        assert raw.headers["x-rlanything-ignored"] == (
            "tools.format, tools.tool_search, tools.web_search, x-codex-beta-features"
        )
        edited, closed = [item.to_dict() for item in raw.parse().output]
        assert edited["type"] == "custom_tool_call"
        assert (edited["name"], edited["input"]) == ("patch", "+\n")
        assert (closed["namespace"], closed["name"]) == ("agents", "close")
        output = {"type": "custom_tool_call_output", "call_id": edited["call_id"], "output": "ok"}
        closing = {"type": "function_call_output", "call_id": closed["call_id"], "output": "gone"}
        chat += [edited, closed, closing, output]
        async with client.responses.stream(input=chat, **asking) as events:
            kinds = {event.type: event async for event in events}
        # A call that is not a text reaches the program as it is.
        assert kinds["response.custom_tool_call_input.done"].input == '{"word": "a"}'
        [wrong] = [item.to_dict() for item in kinds["response.completed"].response.output]
        chat += [wrong, {**output, "call_id": wrong["call_id"], "output": "no"}]
        return (await client.responses.create(input=chat, **asking)).output_text == "Done."

    policy = Scripted()
    trajectory = won(solve, *says, policy=policy)
    assert [step.response for step in trajectory.steps] == [*says]
    first, second, third = policy.requests
    assert [tool["name"] for tool in first.tools] == ["patch", "agents__close", "more"]
    assert first.tools[0]["description"] == (
        'Edits.\nThe input follows this lark grammar:\nstart: "+"'
    )
    described = {"name": "agents__close", "description": "Helpers.", "parameters": SCHEMA}
    assert first.tools[1] == described
    assert [message.content for message in second.messages[-2:]] == ["ok", "gone"]
    assert (second.follows, third.follows) == (0, None)


def test_a_response_that_is_continued_keeps_the_tools_that_its_input_added() -> None:
    more = {"type": "additional_tools", "tools": [{"type": "function", "name": "look"}]}

    async def solve(task: Task, client: Any) -> bool:
        first = await client.responses.create(
            model="policy", input=[more, {"role": "user", "content": "Go."}]
        )
        await client.responses.create(
            model="policy", previous_response_id=first.id, input="And now?"
        )
        return True

    policy = Scripted()
    won(solve, "yes", policy=policy)
    assert [[tool["name"] for tool in each.tools] for each in policy.requests] == [["look"]] * 2
