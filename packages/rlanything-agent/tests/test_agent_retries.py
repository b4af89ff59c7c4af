"""A request that a client sends again is one step; one that a program repeats is two."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

import httpx2
import openai
import pytest

from helpers.agents import Waiting, agent, ask, played, said
from rlanything.domains.calls import Said
from rlanything.records import Task
from rlanything_agent.asked import Asked, Denial
from rlanything_agent.conversation import (
    MOST_PENDING,
    Conversation,
    Pending,
    PolicyAnswer,
    Sent,
)
from rlanything_agent.dialects.chat import ChatCompletions


def run(solve: Any, *says: str) -> Any:
    policy = Waiting()

    async def solving(task: Task, client: Any) -> Any:
        return await solve(client, policy.go)

    [trajectory] = played(agent(solving, list(says)), policy=policy).trajectories
    return trajectory


def posted(client: Any, seconds: float | None, headers: Any = (), **body: Any) -> Any:
    """A request of a client that is not OpenAI's, over the network."""
    messages = [{"role": "user", "content": "Well?"}]

    async def post() -> Any:
        async with httpx2.AsyncClient(trust_env=False, timeout=seconds) as own:
            return await own.post(
                f"{client.base_url}chat/completions",
                headers={"authorization": f"Bearer {client.api_key}", **dict(headers)},
                json={"model": "policy", "messages": messages, **body},
            )

    return post()


async def hang_up(request: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(httpx2.ReadTimeout):
        await request


@pytest.mark.parametrize("more", [{}, {"stream": True}])
def test_a_client_that_hangs_up_and_asks_again_has_asked_once(more: dict[str, Any]) -> None:
    async def solve(client: Any, go: threading.Event) -> bool:
        await hang_up(posted(client, 1.0, **more))
        await hang_up(posted(client, 1.0, **more))
        again = asyncio.create_task(posted(client, 10, **more))
        await asyncio.sleep(0.5)  # the endpoint hears of the end of the connection
        go.set()
        return "one" in (await again).text and "two" in (await posted(client, 10, **more)).text

    trajectory = run(solve, "one", "two")
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 2)


def test_several_answers_are_asked_for_once_too() -> None:
    async def solve(client: Any, go: threading.Event) -> bool:
        await hang_up(posted(client, 1.0, n=3))
        again = asyncio.create_task(posted(client, 10, n=3))
        await asyncio.sleep(0.5)
        go.set()
        choices = (await again).json()["choices"]
        return [choice["message"]["content"] for choice in choices] == ["a", "b", "c"]

    trajectory = run(solve, "a", "b", "c", "d")
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 3)


def test_openais_client_retries_into_the_same_step() -> None:
    def solve(task: Task, client: openai.OpenAI) -> bool:
        messages: Any = [{"role": "user", "content": "Well?"}]
        quick = openai.OpenAI(
            base_url=client.base_url,
            api_key=client.api_key,
            timeout=0.3,
            http_client=openai.DefaultHttpxClient(trust_env=False),
        )
        threading.Timer(0.6, policy.go.set).start()
        with quick:
            reply = quick.chat.completions.create(model="policy", messages=messages)
        return reply.choices[0].message.content == "one"

    policy = Waiting()
    [trajectory] = played(agent(solve, ["one", "two", "three"]), policy=policy).trajectories
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 1)


@pytest.mark.parametrize("headers", [{"idempotency-key": "k"}, {"x-stainless-retry-count": "1"}])
def test_a_request_that_says_it_is_the_same_gets_the_same_answer(headers: dict[str, str]) -> None:
    async def solve(client: Any, go: threading.Event) -> bool:
        go.set()
        first = await posted(client, 10, headers)
        second = await posted(client, 10, headers)
        return first.json() == second.json()

    trajectory = run(solve, "one", "two")
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 1)


def test_an_idempotency_key_is_of_one_body() -> None:
    async def solve(client: Any, go: threading.Event) -> bool:
        go.set()
        await posted(client, 10, {"idempotency-key": "k"})
        other = await posted(client, 10, {"idempotency-key": "k"}, stop="x")
        await posted(client, 10, {"idempotency-key": "l"})
        error = other.json()["error"]
        return (other.status_code, error["code"]) == (422, "idempotency_key_reused")

    trajectory = run(solve, "one")
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 2)


def test_equal_requests_at_the_same_time_are_steps_of_their_own() -> None:
    async def solve(client: Any, go: threading.Event) -> bool:
        go.set()
        replies = await asyncio.gather(*(ask(client, "Vote.") for _ in range(3)))
        return sorted(reply.choices[0].message.content for reply in replies) == list("abc")

    trajectory = run(solve, "a", "b", "c")
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 3)


def asked(text: str = "Hi", **more: Any) -> Asked:
    message = {"role": "user", "content": text}
    body = {"model": "policy", "messages": [message], **more}
    return ChatCompletions().read(body, images=False)


def answer(number: int) -> PolicyAnswer:
    return PolicyAnswer(Said(str(number)), said(str(number)), number)


async def started(conversation: Conversation, *arguments: Any) -> asyncio.Task[Any]:
    task = asyncio.create_task(conversation.ask(*arguments))
    await asyncio.sleep(0)
    return task


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_an_answer_that_nobody_heard_is_given_to_who_asks_the_same_again() -> None:
    async def play() -> None:
        conversation, sent = Conversation(), Sent("body")
        first = await started(conversation, asked(), sent)
        pending = conversation.next(0)
        assert isinstance(pending, Pending)
        await cancelled(first)
        conversation.settle(pending, answer(7))
        [heard] = await conversation.ask(asked(), sent)
        assert heard.number == 7
        assert conversation.next(0) is None
        await cancelled(await started(conversation, asked(), sent))  # it was heard: a new one
        assert conversation.next(0) is None  # and taken back, unseen

    asyncio.run(play())


def test_a_refusal_takes_back_the_other_answers_and_may_be_tried_again() -> None:
    async def play() -> None:
        conversation, sent = Conversation(), Sent("body", retry=True)
        first = await started(conversation, asked(n=3), sent)
        pending = conversation.next(0)
        assert isinstance(pending, Pending)
        conversation.settle(pending, Denial("too long"))
        assert conversation.next(0) is None
        with pytest.raises(Denial, match="too long"):
            await first
        await started(conversation, asked(n=3), sent)
        assert isinstance(conversation.next(0), Pending)

    asyncio.run(play())


def test_a_program_that_waits_for_too_many_answers_is_refused() -> None:
    async def play() -> None:
        conversation = Conversation()
        tasks = [
            await started(conversation, asked(n=128), Sent(str(i)))
            for i in range(MOST_PENDING // 128)
        ]
        with pytest.raises(Denial, match="wait for some") as refused:
            await conversation.ask(asked(), Sent("more"))
        assert (refused.value.status, refused.value.code) == (429, "rate_limit_exceeded")
        for task in tasks:
            await cancelled(task)
        assert conversation.next(0) is None

    asyncio.run(play())
