"""How a `solve` is called: its client, its loop, and the faults that are not its policy's."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import math
import socket
import time
import urllib.error
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import httpx2
import numpy as np
import openai
import pytest

from helpers.agents import agent, ask, played
from rlanything.records import Task
from rlanything_agent.domain import AgentDomain
from rlanything_agent.faults import reason, unreachable
from rlanything_agent.helpers import HelperOptions, Helpers
from rlanything_agent.outcome import Scale


async def coroutine(task: Task, client: openai.AsyncOpenAI, wanted: str = "yes") -> bool:
    assert isinstance(client, openai.AsyncOpenAI)
    return (await ask(client, "Hi")).choices[0].message.content == wanted


class Caller:
    async def __call__(self, task: Task, client: Any) -> bool:
        return await coroutine(task, client)

    async def method(self, task: Task, client: Any) -> bool:
        return await coroutine(task, client)

    def plain(self, task: Task, client: Any) -> Any:
        return coroutine(task, client)


@functools.wraps(coroutine)
def wrapped(*arguments: Any) -> Any:
    return coroutine(*arguments)


async def forgetful(task: Task, client: Any) -> Any:
    return coroutine(task, client)


class Later:
    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __await__(self) -> Any:
        return coroutine(*self.arguments).__await__()


AWAITED: dict[str, Callable[..., Any]] = {
    "coroutine function": coroutine,
    "partial": functools.partial(coroutine, wanted="yes"),
    "object": Caller(),
    "method": Caller().method,
    "method that returns a coroutine": Caller().plain,
    "partial of what returns one": functools.partial(wrapped),
    "wrapper": wrapped,
    "lambda": lambda task, client: coroutine(task, client),
    "coroutine of a coroutine": forgetful,
    "task, which needs a loop": lambda task, client: asyncio.create_task(coroutine(task, client)),
    "future": lambda task, client: asyncio.gather(coroutine(task, client)),
    "other awaitable": Later,
}


@pytest.mark.parametrize("kind", AWAITED)
def test_what_returns_an_awaitable_is_awaited_and_gets_the_client_for_it(kind: str) -> None:
    solve = AWAITED[kind]
    if kind == "future":
        rollouts = played(agent(solve, reward_range=[0, 1]))
        [crash] = rollouts.crashes
        assert crash.reason.startswith("its agent returned [True]: return True, False")
        return
    [trajectory] = played(agent(solve)).trajectories
    assert trajectory.outcome == 1


def test_tasks_may_come_from_a_coroutine() -> None:
    async def rows() -> Any:
        return [{"id": "a", "instruction": "A."}]

    domain = AgentDomain(tasks=rows, solve=coroutine, splits={"train": 1.0})  # type: ignore[arg-type]
    assert domain.tasks("train", 9, 0) == [Task("a", "A.")]


def test_a_plain_callable_gets_the_plain_client_and_is_called_once() -> None:
    calls: list[Any] = []

    def solve(task: Task, client: openai.OpenAI) -> bool:
        calls.append(client)
        messages: Any = [{"role": "user", "content": "Hi"}]
        reply = client.chat.completions.create(model="policy", messages=messages)
        return reply.choices[0].message.content == "yes"

    [trajectory] = played(agent(functools.partial(solve))).trajectories
    assert trajectory.outcome == 1
    assert [type(client) for client in calls] == [openai.OpenAI]


def test_what_returns_awaitables_is_known_after_its_first_call() -> None:
    clients: list[Any] = []

    def solve(task: Task, client: Any) -> Any:
        clients.append(client)
        return coroutine(task, client)

    domain = agent(solve, ["yes"])
    for _ in range(2):
        assert [each.outcome for each in played(domain).trajectories] == [1]
    assert [type(client) for client in clients] == [openai.OpenAI, *[openai.AsyncOpenAI] * 2]


KEPT: dict[str, Any] = {}


async def keeping(task: Task, client: Any) -> bool:
    """Uses a client, as libraries keep them for the process, and a lock."""
    if not KEPT:
        KEPT["client"] = httpx2.AsyncClient(trust_env=False)
        KEPT["lock"] = asyncio.Lock()
    await ask(client, "Ready?")  # from here on all episodes run at the same time
    async with KEPT["lock"]:
        await asyncio.sleep(0.02)
    own = openai.AsyncOpenAI(
        base_url=client.base_url, api_key=client.api_key, http_client=KEPT["client"]
    )
    return (await ask(own, "Hi")).choices[0].message.content == "yes"


def test_clients_that_are_kept_for_the_process_work_in_every_episode() -> None:
    rollouts = played(agent(keeping, *[["yes"]] * 6), workers=1)
    assert [each.outcome for each in rollouts.trajectories] == [1] * 6


async def quick_or_blocking(task: Task, client: Any) -> bool:
    for _ in range(3):
        if (await ask(client, "Go on?")).choices[0].message.content == "block":
            time.sleep(12)
    return True


def test_a_coroutine_that_blocks_loses_no_other_episode() -> None:
    domain = agent(quick_or_blocking, ["yes", "block", "yes"], *[["a", "b", "c"]] * 2)
    domain._options = type(domain._options)(  # type: ignore[misc]
        domain._options.models, domain._options.helpers, domain._options.scale, False, 5.0
    )
    rollouts = played(domain, workers=1)
    assert [each.outcome for each in rollouts.trajectories] == [-1, 1, 1]


def raised(fault: BaseException) -> BaseException:
    try:
        raise fault
    except BaseException as caught:
        return caught


class Unreachable(Exception):
    """As a library wraps a fault of its client's."""


def wrapping(fault: BaseException) -> BaseException:
    wrapper = Unreachable("the grader failed")
    wrapper.__cause__ = fault
    return wrapper


def request(host: str) -> httpx2.Request:
    return httpx2.Request("GET", f"https://{host}/x")


async def own_limit() -> None:
    async with asyncio.timeout(0):
        await asyncio.sleep(1)


def caught(call: Callable[[], Any]) -> BaseException:
    try:
        call()
    except BaseException as fault:
        return fault
    raise AssertionError


@pytest.mark.parametrize(
    ("fault", "answers", "expected"),
    [
        (ConnectionError("grader down"), ["yes"], True),
        (ConnectionRefusedError(111, "refused"), ["yes"], True),
        (TimeoutError("timed out"), ["yes"], True),
        (socket.gaierror(-2, "unknown"), ["yes"], True),
        (urllib.error.URLError("refused"), ["yes"], True),
        (httpx2.ConnectError("x", request=request("grader.test")), ["see other.test"], True),
        (httpx2.ReadTimeout("x", request=request("grader.test")), ["yes"], True),
        (openai.APIConnectionError(request=request("grader.test")), ["yes"], True),
        (wrapping(ConnectionError("grader down")), ["yes"], True),
        (ExceptionGroup("two", [ConnectionError("a"), TimeoutError()]), ["yes"], True),
        (RuntimeError("<Lock> is bound to a different event loop"), ["yes"], True),
        (RuntimeError("Event loop is closed"), ["yes"], True),
        # What an answer may have brought about.
        (httpx2.ConnectError("x", request=request("bad.test")), ["get https://bad.test"], False),
        (ConnectionError("HTTPSConnectionPool(host='bad.test')"), ["get bad.test"], False),
        (socket.gaierror(-2, "unknown"), ["get https://bad.test"], False),
        (urllib.error.HTTPError("http://x", 404, "gone", {}, None), ["yes"], False),  # type: ignore[arg-type]
        (BrokenPipeError(32, "its program has ended"), ["yes"], False),
        (caught(lambda: asyncio.run(own_limit())), ["yes"], False),
        (caught(lambda: concurrent.futures.Future().result(0)), ["yes"], False),
        (caught(lambda: exec("raise ConnectionError('mine')")), ["yes"], False),
        (ExceptionGroup("two", [ConnectionError("a"), KeyError()]), ["yes"], False),
        (KeyError("answer"), ["yes"], False),
    ],
    ids=repr,
)
def test_a_service_that_cannot_be_reached_is_told_from_what_an_answer_did(
    fault: BaseException, answers: list[str], expected: bool
) -> None:
    assert unreachable(raised(fault), answers) is expected


async def graded(task: Task, client: Any) -> bool:
    said = (await ask(client, "Hi")).choices[0].message.content
    if said == "down":
        raise ConnectionError("the grader is down")
    if said == "mine":
        exec("raise ConnectionError('mine')")
    return True


def test_an_episode_whose_services_are_down_counts_neither_way() -> None:
    rollouts = played(agent(graded, ["down"], ["mine"], ["yes"]))
    assert [each.outcome for each in rollouts.trajectories] == [-1, 1]
    [failure] = rollouts.failures
    assert failure.reason.startswith("its agent failed: ConnectionError: the grader is down, in ")
    [crash] = rollouts.crashes
    assert "mine" in crash.reason


async def gives_up(task: Task, client: Any) -> bool:
    try:
        await asyncio.wait_for(ask(client, "Hi"), 0.1)
    except TimeoutError:
        raise ConnectionError("no answer") from None
    return True


class Late:
    def respond(self, episodes: Any, seeds: Any) -> Any:
        from helpers.agents import said

        time.sleep(2)
        return [said("yes") for _ in episodes]

    def release_cache(self) -> None: ...


def test_a_program_that_gave_up_on_an_answer_may_have_failed_for_that() -> None:
    rollouts = played(agent(gives_up), policy=Late())
    assert [each.outcome for each in rollouts.trajectories] == [-1]
    assert not rollouts.failures


def test_the_place_of_a_fault_is_the_deepest_line_of_the_programs_own() -> None:
    import contextlib
    import json

    @contextlib.contextmanager
    def library() -> Any:
        yield json.loads("{")

    def solve() -> None:
        with library():
            pass

    first = solve.__code__.co_firstlineno
    assert reason(caught(solve)).endswith(f"in {__file__}, line {first - 2}")
    group = caught(lambda: (_ for _ in ()).throw(BaseExceptionGroup("g", [raised(KeyError("a"))])))
    assert reason(group).startswith("KeyError: 'a', in ")


@pytest.mark.parametrize(
    ("value", "win_at", "outcome", "reward"),
    [
        (0.6 + 0.3 + 0.1, 1.0, 1, 1.0),
        (1 + 2**-52, 1.0, 1, 1.0),
        (0.1 + 0.2 - 0.3, 1.0, -1, 0.0),
        (np.float32(0.7), 0.7, 1, 0.7),
        (0.99, 1.0, -1, 0.99),
        (Decimal("0.1") + Decimal("0.2"), 0.3, 1, 0.3),
    ],
)
def test_rewards_are_compared_up_to_rounding(
    value: Any, win_at: float, outcome: int, reward: float
) -> None:
    assert Scale(0.0, 1.0, win_at).outcome(value) == (outcome, reward)


def test_null_and_nan_in_tasks_are_as_good_as_left_out() -> None:
    rows: list[Any] = [
        {"id": "a", "instruction": "A.", "data": None, "kind": None, "split": None, "more": None},
        {"id": "b", "instruction": "B.", "data": math.nan, "kind": math.nan, "split": math.nan},
        Task("c", "C.", "sort", {"answer": 3}),
    ]
    tasks = AgentDomain(tasks=rows, solve=coroutine, splits={"train": 1.0}).tasks("train", 9, 0)
    assert sorted(tasks, key=lambda task: task.id) == [
        Task("a", "A."),
        Task("b", "B."),
        Task("c", "C.", "sort", {"answer": 3}),
    ]


def test_null_in_a_helpers_options_is_as_good_as_left_out() -> None:
    names = ("model", "key_variable", "timeout_seconds")
    blank = HelperOptions.model_validate({"url": "http://x", **dict.fromkeys(names)})
    plain = HelperOptions(url="http://x")
    assert Helpers({"big": blank}, 10.0)._helpers == Helpers({"big": plain}, 10.0)._helpers
