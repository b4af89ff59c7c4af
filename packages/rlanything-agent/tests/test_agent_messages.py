"""All that a message brings: read, at the place of its call, named as ignored, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from helpers.agents import Scripted, agent, ask, played
from rlanything.domains.base import Episode
from rlanything.records import Completion, Message, Task
from rlanything_agent.asked import Asked, Denial
from rlanything_agent.dialects.chat import ChatCompletions

THOUGHT = "<think>\nfirst the drawer\n</think>\n\n"
LOOK: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object"}},
}


def read(*messages: dict[str, Any], **changes: Any) -> Asked:
    body = {"model": "policy", "messages": [*messages], **changes}
    return ChatCompletions().read(body, images=False)


def calling(*ids: Any, **more: Any) -> dict[str, Any]:
    calls = [
        {"id": name, "type": "function", "function": {"name": f"f{i}", "arguments": "{}"}}
        for i, name in enumerate(ids)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(name: Any, text: str = "", **more: Any) -> dict[str, Any]:
    given = {} if name is None else {"tool_call_id": name}
    return {"role": "tool", "content": text or f"of {name}", **given, **more}


USER = {"role": "user", "content": "Go."}


def test_results_stand_in_the_order_of_their_calls() -> None:
    one = read(USER, calling("a", "b"), result("b"), result("a"), USER, calling("a"), result("a"))
    assert [message.content for message in one.messages] == [
        *("Go.", "", "of a", "of b", "Go.", "", "of a"),
    ]
    in_order = [result("a"), result("b"), USER, calling("a"), result("a")]
    ordered = read(USER, calling("a", "b"), *in_order)
    assert one.digest == ordered.digest
    # Without ids they are taken to be in that order.
    plain = read(USER, calling(None, None), result(None, "one"), result(None, "two"))
    assert [message.content for message in plain.messages[2:]] == ["one", "two"]
    assert read(USER, calling("a"), result(None)).messages[2].content == "of None"


@pytest.mark.parametrize(
    ("messages", "place", "reason"),
    [
        ([USER, result("x")], 1, "'x' is the id of no call"),
        ([USER, result(None)], 1, "it is the result of no call"),
        ([USER, calling("a"), result("x")], 2, "'x' is the id of no call"),
        ([USER, calling("a"), result("a"), result("a")], 2, "'a' has several results"),
        ([USER, calling("a", "b"), result("a")], 1, "the call of 'f1' .id 'b'. has no result"),
        ([USER, calling("a")], 1, "the call of 'f0' .id 'a'. has no result"),
        ([USER, calling("a"), USER, result("a")], 1, "has no result right behind it"),
        ([USER, calling("a"), result("a"), USER, result("a")], 4, "'a' is the id of no call"),
        ([USER, calling(None), result(None), result(None)], 3, "it is the result of no call"),
        ([USER, calling(None, None), result(None)], 1, "the call of 'f1' .id ''. has no result"),
        ([USER, calling("a", "b"), result("a"), result(None)], 3, "the result of no call"),
        ([USER, calling("a", "a"), result("a"), result("a")], 1, "calls share the id 'a'"),
        ([USER, calling(3), result("a")], 1, "id must be a text"),
        ([USER, calling("a"), result(3)], 2, "tool_call_id must be a text"),
    ],
)
def test_a_call_without_its_result_and_a_result_without_its_call_are_refused(
    messages: list[dict[str, Any]], place: int, reason: str
) -> None:
    with pytest.raises(Denial, match=reason) as refused:
        read(*messages)
    assert (refused.value.status, refused.value.param) == (400, f"messages[{place}]")
    assert refused.value.message.startswith(f"messages[{place}]: ")


def said(**given: Any) -> Message:
    return read(USER, {"role": "assistant", "content": "I look.", **given}).messages[1]


def test_thoughts_are_read_from_fields_and_from_parts() -> None:
    parts = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "I look."}]
    for given in (
        {"reasoning_content": "Hm."},
        {"reasoning": "Hm."},
        {"reasoning": "Hm.", "reasoning_content": "Hm."},
        {"content": parts},
        {"content": parts, "reasoning_content": "Hm."},
        {"content": [{**parts[0], "thinking": [{"type": "text", "text": "Hm."}]}, parts[1]]},
        {"content": [{"type": "reasoning", "text": "Hm."}, parts[1]]},
    ):
        message = said(**given)
        assert (message.content, message.thought) == ("I look.", "Hm."), given
    with pytest.raises(Denial, match="reasoning must be a text"):
        said(reasoning={"a": 1})
    # An answer that is sent back without its thoughts is the same turn.
    assert said(reasoning="Hm.") == said()


@pytest.mark.parametrize(
    ("message", "ignored"),
    [
        ({"role": "user", "content": "Go.", "name": "Ann"}, ["messages.name"]),
        ({"role": "system", "content": "Go.", "reasoning": "Hm."}, ["messages.reasoning"]),
        ({"role": "assistant", "annotations": [{"url": "x"}]}, ["messages.annotations"]),
        ({"role": "assistant", "annotations": [], "audio": None, "refusal": None, "x": ""}, []),
        ({"role": "assistant", "cache": 0}, ["messages.cache"]),
        (
            {"role": "assistant", "reasoning": "a", "reasoning_content": "b"},
            ["messages.reasoning"],
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"a": 1}}]},
            ["messages.content.cache_control"],
        ),
    ],
)
def test_what_has_no_effect_is_named(message: dict[str, Any], ignored: list[str]) -> None:
    assert [*read(message).ignored] == ignored


def test_keys_of_calls_that_have_no_effect_are_named() -> None:
    message = calling("a")
    message["tool_calls"][0] |= {"index": 0, "extra_content": {"a": 1}}
    message["tool_calls"][0]["function"]["strict"] = True
    assert [*read(USER, message, result("a")).ignored] == [
        *("messages.tool_calls.extra_content", "messages.tool_calls.function.strict")
    ]


def test_what_of_tools_has_no_effect_is_named() -> None:
    strict = {**LOOK, "cache_control": {}, "function": {**LOOK["function"], "strict": True}}
    asked = read(USER, tools=[strict, LOOK], tool_choice="required")
    assert [*asked.ignored] == ["tool_choice", "tools.cache_control", "tools.function.strict"]
    assert [*asked.tools] == [LOOK["function"], LOOK["function"]]
    loose = {**LOOK, "function": {**LOOK["function"], "strict": False}}
    assert read(USER, tools=[loose], tool_choice="auto").ignored == ()


def test_a_refusal_is_what_the_assistant_said() -> None:
    assert said(content=None, refusal="I will not.").content == "I will not."
    part = {"type": "refusal", "refusal": "I will not."}
    assert said(content=[part]).content == "I will not."


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "assistant", "audio": {"id": "x"}}, "audio is not supported: send its transcr"),
        ({**calling("a"), "role": "user"}, "a message of role user has no tool_calls"),
        ({"role": "tool", "name": 3, "tool_call_id": "a"}, "name must be a text"),
        (
            {"role": "user", "content": [{"type": "thinking", "thinking": "x"}]},
            "parts of type 'thinking' are not supported",
        ),
        (
            {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
            "parts of type 'redacted_thinking' are not supported",
        ),
        ({"role": "user", "content": [{"type": "file", "text": "x"}]}, "parts of type 'file'"),
    ],
)
def test_what_cannot_be_read_is_refused(message: dict[str, Any], reason: str) -> None:
    with pytest.raises(Denial, match=reason):
        read(message)


@pytest.mark.parametrize("arguments", [None, "", "null", "{}", {}])
def test_a_call_that_is_sent_may_have_no_arguments(arguments: Any) -> None:
    message = calling("a")
    message["tool_calls"][0]["function"]["arguments"] = arguments
    assert read(USER, message, result("a")).messages[1].calls[0].arguments == "{}"


@pytest.mark.parametrize("arguments", ['{"x": NaN}', '{"x": 1e999}', {"x": float("inf")}])
def test_a_call_that_is_sent_has_strict_json(arguments: Any) -> None:
    message = calling("a")
    message["tool_calls"][0]["function"]["arguments"] = arguments
    with pytest.raises(Denial, match="a JSON object as text"):
        read(USER, message, result("a"))


class Thinking(Scripted):
    """Answers after a thought, as a chat model hands it over, and leaves a field unread."""

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        return [
            replace(
                each,
                text=THOUGHT + each.text,
                answer_at=len(THOUGHT),
                unread=("messages.reasoning_content",),
            )
            for each in super().respond(episodes, seeds)
        ]


async def thinks(task: Task, client: Any) -> bool:
    reply = await ask(client, "Go.", tools=[LOOK])
    message = reply.choices[0].message
    assert message.reasoning_content == "first the drawer"
    [call] = message.tool_calls
    back = message.model_dump()
    assert back["reasoning_content"] == "first the drawer"
    chat: list[Any] = [
        {"role": "user", "content": "Go."},
        back,
        {"role": "tool", "tool_call_id": call.id, "content": "It is empty."},
    ]
    raw = await client.chat.completions.with_raw_response.create(
        model="policy", messages=chat, tools=[LOOK], temperature=0, extra_body={"user": "é"}
    )
    assert raw.headers["x-rlanything-ignored"] == "messages.reasoning_content, temperature, user"
    stream = await client.chat.completions.create(model="policy", messages=chat, stream=True)
    thoughts = [getattr(chunk.choices[0].delta, "reasoning_content", "") async for chunk in stream]
    return "".join(thoughts) == "first the drawer"


def test_thoughts_are_offered_and_come_back() -> None:
    call = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    policy = Thinking()
    rollouts = played(agent(thinks, [call, "Done.", "Done."]), policy=policy)
    assert not rollouts.crashes, rollouts.crashes[0].reason
    [trajectory] = rollouts.trajectories
    assert trajectory.outcome == 1
    assert [step.response for step in trajectory.steps] == [call, "Done.", "Done."]
    assert policy.requests[1].messages[1].thought == "first the drawer"
    assert (policy.requests[1].follows, policy.requests[1].thread) == (0, 0)


async def odd_names(task: Task, client: Any) -> bool:
    message = {
        "role": "user",
        "content": "Go.",
        "ключ\r\n": 1,
        **{f"k{i:02}": 1 for i in range(99)},
    }
    raw = await client.chat.completions.with_raw_response.create(model="policy", messages=[message])
    ignored = raw.headers["x-rlanything-ignored"].split(", ")
    return ignored[0] == "messages.k00" and ignored[-1] == "..." and len(ignored) == 33


def test_names_of_a_programs_own_making_fit_into_a_header() -> None:
    assert played(agent(odd_names)).trajectories[0].outcome == 1


async def template_variables(task: Task, client: Any) -> bool:
    body = {"chat_template_kwargs": {"enable_thinking": False}}
    return bool((await ask(client, "Go.", extra_body=body)).choices)


def test_variables_of_the_template_reach_the_policy() -> None:
    policy = Scripted()
    [trajectory] = played(agent(template_variables), policy=policy).trajectories
    assert trajectory.outcome == 1
    assert policy.requests[0].chat_template_kwargs == {"enable_thinking": False}
    with pytest.raises(Denial, match="chat_template_kwargs must be a JSON object"):
        read(USER, chat_template_kwargs=3)
    assert read(USER).digest != read(USER, chat_template_kwargs={"a": 1}).digest


async def not_json(task: Task, client: Any) -> bool:
    async with httpx2.AsyncClient(trust_env=False) as raw:
        for body in (b'{"model": NaN}', b'{"temperature": 1e999}', b'{"n": 1, "n": 2}'):
            reply = await raw.post(
                f"{client.base_url}chat/completions",
                content=body,
                headers={"authorization": f"Bearer {client.api_key}"},
            )
            assert reply.status_code == 400
            assert "the body is no JSON" in reply.json()["error"]["message"]
    return bool((await ask(client, "Go.")).choices)


def test_a_body_is_strict_json() -> None:
    assert played(agent(not_json)).trajectories[0].outcome == 1
