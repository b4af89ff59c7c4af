"""Requests of the real `openai` client: what it gets, what is refused, and what the steps hold."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import openai
import PIL.Image
import pytest

from helpers.agents import Scripted, agent, ask, played
from helpers.fake_endpoint import KEY, MODEL, FakeEndpoint
from rlanything.domains.base import Episode
from rlanything.domains.calls import parse_calls
from rlanything.records import Completion, Message, Task, ToolCall, Trajectory
from rlanything.rollout.workers import EnvironmentPool
from rlanything_agent.asked import Asked, Denial
from rlanything_agent.dialects.chat import ChatCompletions

SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Looks something up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}
CALL = '<tool_call>\n{"name": "search", "arguments": {"word": "zeugma"}}\n</tool_call>'


def run(solve: Any, *says: str, policy: Any = None, **options: Any) -> Trajectory:
    """The one trajectory of a program on scripted answers, which ends well."""
    rollouts = played(agent(solve, says or ["yes"], **options), policy=policy)
    assert not rollouts.failures
    assert not rollouts.crashes, rollouts.crashes[0].reason
    return rollouts.trajectories[0]


async def with_tools(task: Task, client: Any) -> bool:
    messages: list[Any] = [{"role": "user", "content": "What is a zeugma?"}]
    reply = await client.chat.completions.create(model="policy", messages=messages, tools=[SEARCH])
    [choice] = reply.choices
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "search",
        {"word": "zeugma"},
    )
    messages += [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "a figure of speech"},
    ]
    reply = await client.chat.completions.create(model="policy", messages=messages, tools=[SEARCH])
    return reply.choices[0].message.content == "A figure of speech."


@pytest.mark.parametrize(
    "says",
    [
        CALL,
        f"Let me see.\n{CALL}",
        CALL.removesuffix("\n</tool_call>"),
        '{"name": "search", "parameters": {"word": "zeugma"}}',
        '```json\n{"name": "search", "arguments": {"word": "zeugma"}}\n```',
    ],
)
def test_a_call_reaches_the_program_and_its_result_the_policy(says: str) -> None:
    policy = Scripted()
    trajectory = run(with_tools, says, "A figure of speech.", policy=policy)
    assert trajectory.outcome == 1
    first, second = trajectory.steps
    assert first.observation == "What is a zeugma?\n[tools] search"
    assert first.action == 'search({"word": "zeugma"})'
    assert first.valid
    assert first.response == says
    assert first.next_observation == second.observation == "[tool] a figure of speech"
    one, two = policy.requests
    assert one.follows is None
    assert (two.follows, two.thread) == (0, 0)
    assert two.messages[1].calls == (ToolCall("search", '{"word": "zeugma"}'),)
    assert two.messages[2] == Message("tool", "a figure of speech")


class Mistral(Scripted):
    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        answers = super().respond(episodes, seeds)
        return [replace(answer, call_family="mistral") for answer in answers]


def test_calls_are_read_in_the_format_of_the_policys_family() -> None:
    says = '[TOOL_CALLS]search[ARGS]{"word": "zeugma"}'
    trajectory = run(with_tools, says, "A figure of speech.", policy=Mistral())
    assert trajectory.outcome == 1
    assert trajectory.steps[0].action == 'search({"word": "zeugma"})'


@pytest.mark.parametrize(
    ("says", "readable"),
    [
        ("No call.", True),
        ("<tool_call>search zeugma</tool_call>", False),
        ('<tool_call>{"name": "search", "arguments": [1]}</tool_call>', False),
        ('{"name": "other", "arguments": {}}', True),
        ('{"name": 3}', True),
        ("[" * 100_000, True),
    ],
)
def test_what_is_no_call_stays_text(says: str, readable: bool) -> None:
    said = parse_calls(says, [SEARCH["function"]])
    assert (said.content, said.calls, said.readable) == (says, (), readable)


def test_an_unreadable_call_is_an_invalid_action_of_the_policy() -> None:
    async def solve(task: Task, client: Any) -> bool:
        reply = await ask(client, "Go.", tools=[SEARCH], tool_choice="required")
        return reply.choices[0].message.tool_calls is not None

    trajectory = run(solve, "<tool_call>search</tool_call>")
    assert (trajectory.steps[0].valid, trajectory.outcome) == (False, -1)


async def streams(task: Task, client: Any) -> bool:
    messages: list[Any] = [{"role": "user", "content": "Say it."}]
    stream = await client.chat.completions.create(
        model="policy", messages=messages, stream=True, stream_options={"include_usage": True}
    )
    text, ends = "", []
    usage: Any = None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            ends += [choice.finish_reason] if choice.finish_reason else []
    assert (ends, usage.completion_tokens, usage.prompt_tokens) == (["stop"], 5, 3)
    async with client.chat.completions.stream(
        model="policy", messages=messages, tools=[SEARCH]
    ) as events:
        final = await events.get_final_completion()
    [call] = final.choices[0].message.tool_calls
    return text == "Words" and call.function.name == "search"


def test_answers_stream_also_with_calls() -> None:
    assert run(streams, "Words", CALL).outcome == 1


def over_the_network(task: Task, client: Any) -> bool:
    """A plain function, whose client has a server to reach."""
    reply = client.chat.completions.create(
        model="policy", messages=[{"role": "user", "content": "Hello?"}], stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in reply)
    names = [model.id for model in client.models.list()]
    return (text, names) == ("Words", ["policy"])


def test_a_plain_function_asks_over_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # which nobody asks
    assert run(over_the_network, "Words").outcome == 1


async def two_answers(task: Task, client: Any) -> bool:
    reply = await ask(client, "Choose.", n=2, logprobs=True)
    texts = [choice.message.content for choice in reply.choices]
    tokens = [entry.token for entry in reply.choices[1].logprobs.content]
    assert tokens == [f"token_id:{byte}" for byte in b"two"]
    assert [entry.logprob for entry in reply.choices[1].logprobs.content] == [-0.5] * 3
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 6)
    again = await ask(client, "Choose.", texts[1])
    return texts == ["one", "two"] and again.choices[0].message.content == "three"


def test_n_answers_are_n_steps_with_their_own_tokens() -> None:
    trajectory = run(two_answers, "one", "two", "three")
    assert trajectory.outcome == 1
    assert [step.response for step in trajectory.steps] == ["one", "two", "three"]
    assert [step.observation for step in trajectory.steps] == ["Choose.", "(asked again)", "two"]


async def forks(task: Task, client: Any) -> bool:
    """Keeps two conversations, edits one, and begins anew."""

    async def say(*messages: tuple[str, str]) -> None:
        chat = [{"role": role, "content": text} for role, text in messages]
        await client.chat.completions.create(model="policy", messages=chat)

    a, b = ("user", "A"), ("user", "B")
    await say(a)
    await say(b)
    await say(a, ("assistant", "0"), ("user", "more"))
    await say(b, ("assistant", "1"), ("user", "more"))
    await say(a, ("assistant", "edited"), ("user", "more"))
    await say(a, ("assistant", "0"), ("user", "other"))
    return True


def test_each_conversation_of_an_episode_goes_on_by_itself() -> None:
    policy = Scripted()
    trajectory = run(forks, "0", "1", "2", "3", "4", "5", policy=policy)
    places = [(request.follows, request.thread) for request in policy.requests]
    assert places == [(None, 0), (None, 1), (0, 0), (1, 1), (None, 2), (None, 3)]
    observed = [step.observation for step in trajectory.steps]
    assert observed == ["A", "B", "more", "more", "[assistant] edited\nmore", "other"]


def test_requests_at_the_same_time_are_answered_one_by_one() -> None:
    async def solve(task: Task, client: Any) -> bool:
        replies = await asyncio.gather(*(ask(client, str(i)) for i in range(4)))
        return sorted(reply.choices[0].message.content for reply in replies) == list("abcd")

    trajectory = run(solve, "a", "b", "c", "d")
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 4)


def test_what_of_sampling_is_the_runs_is_ignored_and_said_so() -> None:
    async def solve(task: Task, client: Any) -> bool:
        raw = await client.chat.completions.with_raw_response.create(
            model="policy",
            messages=[{"role": "user", "content": "Hi"}],
            temperature=0.3,
            top_p=0.5,
        )
        return raw.headers["x-rlanything-ignored"] == "temperature, top_p"

    assert run(solve).outcome == 1


read_request = ChatCompletions().read
BODY = {"model": "policy", "messages": [{"role": "user", "content": "Hi"}]}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"messages": []}, "messages must be a list"),
        ({"messages": ["Hi"]}, r"messages\[0\]: role must be one of system, developer"),
        ({"messages": [{"role": "ghost"}]}, "role must be one of"),
        ({"messages": [{"role": "user", "content": 3}]}, "content must be a text or a list"),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            "parts of type 'input_audio' are not supported",
        ),
        ({"messages": [{"role": "user", "content": [PICTURE]}]}, "shown text only"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]},
            "each of tool_calls needs a function",
        ),
        ({"n": 0}, "n must be a whole number from 1 to 128"),
        ({"n": 1000}, "n must be a whole number from 1 to 128"),
        ({"max_tokens": "many"}, "max_tokens must be a whole number from 1"),
        ({"stop": [""]}, "stop must be a text or a list of texts"),
        ({"stream": 1}, "stream must be true or false"),
        ({"top_logprobs": 5}, "only sampled tokens have log-probs"),
        ({"response_format": {"type": "json_object"}}, "'json_object' cannot be enforced here"),
        ({"response_format": {"type": "json_schema"}}, "describe the form in a message"),
        ({"logit_bias": {"3": 1}}, "logit_bias is not supported: leave it out"),
        ({"tools": [{"type": "web_search"}]}, "tools must be a list of functions"),
        ({"tools": 3}, "tools must be a list of functions"),
        ({"messages": [{"role": ["user"], "content": ""}]}, "role must be one of"),
        ({"messages": [{"role": "assistant", "tool_calls": 5}]}, "tool_calls must be a list"),
        (
            {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]},
            "function_call is not supported: send tool_calls",
        ),
        ({"tool_choice": {"function": {"name": "f"}}}, "names 'f', which is none of tools"),
        ({"tool_choice": "maybe"}, "tool_choice must be auto"),
        ({"structured_outputs": {"regex": "a"}}, "a list of the texts to choose among"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_remedy(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Denial, match=reason) as refused:
        read_request({**BODY, **changes}, images=False)
    assert refused.value.status == 400


def test_errors_are_in_openais_form() -> None:
    async def solve(task: Task, client: Any) -> bool:
        with pytest.raises(openai.NotFoundError, match="no model 'gpt-9': ask policy") as unknown:
            await client.chat.completions.create(model="gpt-9", messages=BODY["messages"])
        assert unknown.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as unsupported:
            await ask(client, "Hi", logit_bias={"3": 1})
        assert unsupported.value.code == "unsupported_parameter"
        with pytest.raises(openai.APIStatusError, match="more than 8,388,608 bytes") as large:
            await ask(client, "Hi" * 2**22)
        assert (large.value.status_code, large.value.code) == (413, "request_too_large")
        with pytest.raises(openai.BadRequestError, match="n must be a whole") as refused:
            await ask(client, "Hi", n=-1)
        assert refused.value.param == "n"
        assert refused.value.type == "invalid_request_error"
        with pytest.raises(openai.NotFoundError, match="are all there is"):
            await client.embeddings.create(model="policy", input="Hi")
        with pytest.raises(openai.AuthenticationError, match="unknown key"):
            await ask(client.with_options(api_key="sk-guess"), "Hi")
        async with httpx2.AsyncClient(trust_env=False) as raw:
            reply = await raw.post(
                f"{client.base_url}chat/completions",
                content=b"{",
                headers={"authorization": f"Bearer {client.api_key}"},
            )
        assert (reply.status_code, reply.json()["error"]["message"]) == (
            400,
            "the body is no JSON: send an object",
        )
        assert reply.json()["error"]["code"] == "invalid_json"
        return (await ask(client, "Hi")).choices[0].message.content == "yes"

    trajectory = run(solve)
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 1)


def test_images_reach_the_policy_and_the_runs_folder(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (2, 3)).save(buffer, "PNG")
    data = buffer.getvalue()
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]

    async def solve(task: Task, client: Any) -> bool:
        messages = [{"role": "user", "content": parts}]
        await client.chat.completions.create(model="policy", messages=messages)
        return True

    domain = agent(solve, images=True)
    [task] = domain.tasks("train", 1, 0)
    with EnvironmentPool(domain, {}, 0, 20, tmp_path / "images") as pool:
        [seen] = pool.reset([task])
        [path] = (tmp_path / "images").iterdir()
    assert path.read_bytes() == data
    assert seen.request.messages == (Message("user", "What is it?", (path.name,)),)  # type: ignore[union-attr]
    assert domain.capabilities.shows_images


def test_an_image_that_is_cut_off_is_refused() -> None:
    buffer = io.BytesIO()
    PIL.Image.effect_noise((64, 64), 50).save(buffer, "PNG")
    for kept in (buffer.getvalue()[:-300], buffer.getvalue()[:9]):
        url = f"data:image/png;base64,{base64.b64encode(kept).decode()}"
        content = [{"type": "image_url", "image_url": {"url": url}}]
        with pytest.raises(Denial, match="send images as PNG"):
            read_request({**BODY, "messages": [{"role": "user", "content": content}]}, images=True)


def test_a_request_is_known_again_by_what_decides_its_answer() -> None:
    def asked(**changes: Any) -> Asked:
        return read_request({**BODY, **changes}, images=False)

    assert asked().digest == asked(temperature=1, stream=True, logprobs=True).digest
    others = [asked(stop="a"), asked(max_tokens=3), asked(tools=[SEARCH])]
    assert len({other.digest for other in [asked(), *others]}) == 4


async def two_models(task: Task, client: Any) -> bool:
    mine = await ask(client, "Draft it.")
    other = await client.chat.completions.create(
        model="reviewer", messages=[{"role": "user", "content": "Review it."}]
    )
    names = [model.id async for model in client.models.list()]
    assert names == ["policy", "gpt-4o", "reviewer"]
    alias = await client.chat.completions.create(model="gpt-4o", messages=BODY["messages"])
    return (
        mine.choices[0].message.content == alias.choices[0].message.content == "yes"
        and other.choices[0].message.content == "fine"
    )


def test_a_frozen_helper_answers_beside_the_policy_and_is_no_step(fake: FakeEndpoint) -> None:
    fake.say = lambda body: "fine"
    helper = {"url": fake.url, "model": MODEL, "key_variable": "MY_KEY"}
    trajectory = run(two_models, models=["policy", "gpt-4o"], helpers={"reviewer": helper})
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 2)
    assert fake.keys == [f"Bearer {KEY}"]


def test_a_helper_that_is_slow_costs_no_more_than_its_time(fake: FakeEndpoint) -> None:
    fake.delay_seconds = 2

    async def solve(task: Task, client: Any) -> bool:
        await ask(client, "Hi")
        with pytest.raises(openai.APIStatusError, match=r"helper 'big': .* within 0.5 s; raise"):
            await client.chat.completions.create(model="big", messages=BODY["messages"])
        return True

    helper = {"url": fake.url, "timeout_seconds": 0.5}
    assert run(solve, helpers={"big": helper}).outcome == 1


def test_a_helper_that_is_gone_is_an_error_of_one_line() -> None:
    async def solve(task: Task, client: Any) -> bool:
        await ask(client, "Hi")
        with pytest.raises(openai.APIStatusError, match=r"helper 'big': .* does not answer"):
            await client.chat.completions.create(model="big", messages=BODY["messages"])
        return True

    helper = {"url": "http://127.0.0.1:9/v1", "timeout_seconds": 2}
    assert run(solve, helpers={"big": helper}).outcome == 1
