"""Episodes on ORS servers: rewards of calls, outcomes, labels, and servers that misbehave."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from helpers.agents import said
from helpers.calling import call
from helpers.odd_domain import Odd
from helpers.serving import served
from rlanything.domains.base import DomainError
from rlanything.records import Completion
from rlanything.roles.judges.oracle import OracleJudge
from rlanything.rollout.episodes import RolloutRequest, Rollouts, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything_gyms.ors import client
from rlanything_gyms.ors.domain import OrsDomain
from rlanything_gyms.serving.ors import OrsServer
from rlanything_gyms.serving.sessions import Sessions

BIG = 50 << 20


def result(text: str = "fine", reward: Any = None, finished: bool = False, **more: Any) -> Any:
    blocks = [{"type": "text", "text": text, "detail": None}]
    output = {"blocks": blocks, "metadata": None, "reward": reward, "finished": finished}
    return {"ok": True, "output": output | more}


@dataclass
class FakeServer:
    """A server whose answers are set by a test; each is JSON, or a way to misbehave."""

    answers: dict[str, Any] = field(default_factory=dict)
    """By path, instead of the usual one."""
    results: list[Any] = field(default_factory=list)
    """Results of successive calls."""
    calls: list[Any] = field(default_factory=list)
    deleted: int = 0
    pinged: list[str] = field(default_factory=list)
    """Sessions that were pinged."""

    def app(self) -> Starlette:
        methods = ["GET", "POST"]
        return Starlette(routes=[Route("/{path:path}", self.answer, methods=methods)])

    async def answer(self, request: Request) -> Response:
        path = request.path_params["path"]
        if path == "game/call" and path not in self.answers:
            self.calls.append(await request.json())
            return await answered(self.results.pop(0), stream=True)
        if path == "delete":
            self.deleted += 1
        if path == "ping":
            self.pinged.append(request.headers["x-session-id"])
        usual: dict[str, Any] = {
            "health": {"status": "ok"},
            "list_environments": ["game"],
            "game/splits": [{"name": "train", "type": "train"}, "test"],
            "game/num_tasks": {"num_tasks": 9},
            "create": {"sid": "s"},
            "game/prompt": [{"type": "text", "text": "Play."}, {"type": "image", "data": ""}],
            "game/task_tools": {"tools": [{"name": "go", "description": "Goes.", "more": 1}]},
            "delete": {},
            "delete_session": {},
        }
        if path == "create_session" and path not in self.answers:
            return await answered(None, stream=True)
        return await answered(self.answers.get(path, usual.get(path, 404)))


async def answered(what: Any, stream: bool = False) -> Response:
    match what:
        case int():
            return JSONResponse({"detail": "no\nsuch thing"}, what)
        case "hang":
            await asyncio.sleep(30)
        case "trickle":
            return StreamingResponse(trickle(), media_type="text/event-stream")
        case "big":
            return Response(b"x" * BIG)
        case "die" | "die before":
            return StreamingResponse(half(what == "die"), media_type="text/event-stream")
        case bytes():
            return Response(what)
    if not stream:
        return JSONResponse(what)
    data = "" if what is None else json.dumps(what)
    text = f"event: task_id\r\ndata: s\r\n\r\n: ping\r\n\r\nevent: end\r\ndata: {data}\r\n\r\n"
    return Response(text, media_type="text/event-stream")


async def trickle() -> AsyncIterator[str]:
    for _ in range(300):
        yield ": ping\r\n\r\n"
        await asyncio.sleep(0.1)


async def half(begun: bool) -> AsyncIterator[str]:
    yield "event: task_id\r\ndata: s\r\n\r\n" if begun else ": "
    raise ConnectionError("gone")


@pytest.fixture
def fake() -> FakeServer:
    return FakeServer()


@pytest.fixture
def url(fake: FakeServer) -> Iterator[str]:
    with served(fake.app()) as url:
        yield url


def domain(url: str, **options: Any) -> OrsDomain:
    return OrsDomain(**{"url": url, "win": {"return": ">= 1"}, "timeout_seconds": 5.0, **options})


class Calling:
    """Gives the same answer at every step: by default, a call of the tool."""

    def __init__(self, text: str = "") -> None:
        self.text = text or call("go")
        self.prompts: list[Any] = []

    def respond(self, episodes: Any, seeds: Any) -> list[Completion]:
        del seeds
        self.prompts += [episode.observation.request for episode in episodes]
        return [said(self.text) for _ in episodes]

    def release_cache(self) -> None: ...


def played(domain: OrsDomain, policy: Calling, max_steps: int = 4) -> Rollouts:
    with EnvironmentPool(domain, {}, 0, 20.0) as pool:
        task = domain.tasks("train", 1, 0)[0]
        return rollout(policy, pool, [RolloutRequest(task.id, task, 0)], max_steps, 8)


def test_calls_earn_rewards_whose_sum_decides(fake: FakeServer, url: str) -> None:
    fake.results = [result("no", -0.25), result("hm"), result("yes", 1.25, finished=True)]
    policy = Calling(f"I go. {call('go', where='on')}")
    [trajectory] = played(domain(url), policy).trajectories
    assert (trajectory.outcome, trajectory.reward) == (1, 1.0)
    ends = [step.next_observation.rpartition("\n")[2] for step in trajectory.steps]
    assert ends == ["[reward -0.25]", "[no reward]", "[reward 1.25]"]
    assert fake.calls[0] == {"name": "go", "input": {"where": "on"}}
    assert fake.deleted
    last = policy.prompts[-1]
    assert [message.role for message in last.messages] == ["user", *("assistant", "tool") * 2]
    assert last.messages[0].content == "Play.\n[image: not shown]"
    assert not any("reward" in message.content for message in last.messages)
    assert [tool["name"] for tool in last.tools] == ["go"]


def test_the_last_reward_or_a_horizon_can_decide(fake: FakeServer, url: str) -> None:
    fake.results = [result(reward=0.5), result(reward=0.75)]
    decided = domain(url, win={"reward": ">= 0.75"}, horizon=2)
    assert played(decided, Calling()).trajectories[0].outcome == 1
    fake.results = [result(reward=2.0) for _ in range(4)]
    assert played(domain(url), Calling()).trajectories[0].outcome == -1


def test_the_signs_of_rewards_are_labels_that_no_prompt_shows(fake: FakeServer, url: str) -> None:
    fake.results = [result(reward=-1), result("hm"), result(reward=0), result(reward=2)]
    own = domain(url)
    [trajectory] = played(own, Calling()).trajectories
    assert own.oracle(trajectory.task, trajectory.steps) == [-1, 0, 0, 1]
    [judged] = OracleJudge(own, 1).judge([trajectory], 0)
    assert judged.scores == ((-1,), (0,), (0,), (1,))
    for prompt in (own.judge_prompt, own.value_prompt):
        text = prompt(trajectory.task, trajectory.steps)[0].content
        assert "fine" in text
        assert "reward" not in text


def test_an_answer_that_cannot_be_read_earns_nothing_again(fake: FakeServer, url: str) -> None:
    class Garbling(Calling):
        def respond(self, episodes: Any, seeds: Any) -> list[Completion]:
            answers = super().respond(episodes, seeds)
            self.text = '<tool_call>{"name": "go", "argu'
            return answers

    fake.results = [result(reward=2)]
    own = domain(url)
    [trajectory] = played(own, Garbling()).trajectories
    assert own.oracle(trajectory.task, trajectory.steps) == [1, 0, 0, 0]


def test_parallel_calls_add_up_and_those_after_the_end_are_refused(
    fake: FakeServer, url: str
) -> None:
    fake.results = [result("one", 0.5), result("two", 0.5, finished=True)]
    [trajectory] = played(domain(url), Calling(call("go") * 3)).trajectories
    assert trajectory.outcome == 1
    last = trajectory.steps[-1]
    assert "an earlier call has ended the episode" in last.next_observation
    assert last.next_observation.endswith("[reward 1]")
    assert not last.valid


def test_a_call_that_the_server_refuses_is_told_to_the_policy(fake: FakeServer, url: str) -> None:
    fake.results = [{"ok": False, "error": "where to?"}, result(finished=True)]
    [trajectory] = played(domain(url), Calling()).trajectories
    first = trajectory.steps[0]
    assert (first.valid, "error: where to?" in first.next_observation) == (False, True)
    [silent] = played(domain(url), Calling("I wait.")).trajectories
    assert [step.valid for step in silent.steps] == [False] * 4
    assert "there is no call in this answer" in silent.steps[0].next_observation


def test_a_call_whose_connection_breaks_is_asked_for_again(fake: FakeServer, url: str) -> None:
    fake.results = ["die", result("again", 1.0, finished=True)]
    [trajectory] = played(domain(url, timeout_seconds=5), Calling()).trajectories
    assert trajectory.outcome == 1
    assert [sent.get("task_id") for sent in fake.calls] == [None, "s"]


@pytest.mark.parametrize(
    ("results", "said_of_it"),
    [
        (["hang"], "no whole answer to /game/call within 1 s"),
        (["trickle"], "no whole answer to /game/call within 1 s"),
        (["big"], "more than 8 MiB"),
        (["die before"], "/game/call"),
        ([500], "refuses /game/call"),
        ([b"event: end\ndata: [1]\n\n"], "does not keep to the standard in /call"),
        ([b"event: error\ndata: it\ndata: broke\n\n"], "fails at a call (it broke)"),
        ([result(reward="much")], "does not keep to the standard in /call"),
        ([result(blocks="text")], "does not keep to the standard in /call"),
        ([b"event: end\ndata: " + json.dumps(result(reward=float("nan"))).encode() + b"\n\n"], ""),
    ],
    ids=str,
)
def test_a_server_that_fails_at_a_call_loses_only_that_episode(
    fake: FakeServer, url: str, results: list[Any], said_of_it: str
) -> None:
    fake.results = [result(), *results, *["die before"] * 3]
    slow = 10.0 if results == ["big"] else 1.0
    rollouts = played(domain(url, timeout_seconds=slow), Calling())
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [-1]
    [crash] = rollouts.crashes
    assert said_of_it in crash.reason
    assert "\n" not in str(crash)


def test_a_session_is_pinged_while_the_policy_waits_for_its_turn(
    fake: FakeServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PING_SECONDS", 0.02)
    fake.results = [result(reward=1.0, finished=True)]
    fake.answers["ping"] = 404  # as of a server that is still making its environment
    playing = domain(url)
    environment = playing.environment()
    environment.reset(playing.tasks("train", 1, 0)[0])
    while len(fake.pinged) < 3:
        time.sleep(0.02)
    assert environment.step(call("go")).outcome == 1
    no_more_pings()
    assert set(fake.pinged) == {"s"}
    pinged = len(fake.pinged)
    monkeypatch.setattr(client, "_MOST_PINGS", 2)
    environment.reset(playing.tasks("train", 1, 0)[0])
    no_more_pings()
    assert len(fake.pinged) == pinged + 2, "a session that nobody uses is left alone"
    environment.close()


def no_more_pings() -> None:
    while any(thread.name == client.PINGING for thread in threading.enumerate()):
        time.sleep(0.02)


def test_a_server_or_session_that_is_gone_counts_neither_way(fake: FakeServer, url: str) -> None:
    fake.results = [result(), 404]
    assert [f.lost for f in played(domain(url), Calling()).failures] == [False]
    fake.results = [result(), "hang"]
    fake.answers["health"] = 503
    assert [f.lost for f in played(domain(url), Calling()).failures] == [False]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("create", 500),
        ("create_session", "hang"),
        ("create_session", b"event: task_id\ndata: a\xffb\n\nevent: end\ndata: \n\n"),
        ("create_session", b""),
        ("game/prompt", {"text": "Play."}),
        ("game/prompt", "big"),
        ("game/task_tools", {"tools": []}),
        ("game/task_tools", {"tools": [{"name": "go"}, {"name": "go"}]}),
        ("game/task_tools", {"tools": [{"name": 3}]}),
        ("game/task_tools", {"tools": [{"name": "go", "input_schema": "text"}]}),
        ("game/task_tools", b"[" * 9999),
    ],
    ids=str,
)
def test_an_episode_that_cannot_begin_counts_neither_way(
    fake: FakeServer, url: str, path: str, answer: Any
) -> None:
    fake.answers[path] = answer
    rollouts = played(domain(url), Calling())
    assert not rollouts.trajectories
    [failure] = rollouts.failures
    assert "\n" not in str(failure)


@pytest.mark.parametrize(
    ("path", "answer", "said_of_it"),
    [
        ("list_environments", ["a", "b"], "has the environments a, b: name one"),
        ("list_environments", {"a": 1}, "does not keep to the standard"),
        ("game/splits", ["test"], "has no split 'train', but test"),
        ("game/num_tasks", {"num_tasks": 0}, "'train' has no tasks"),
        ("game/num_tasks", {"num_tasks": -1}, "does not keep to the standard"),
        ("game/num_tasks", 401, "refuses /game/num_tasks (401: "),
        ("game/splits", "hang", "within 5 s"),
        ("game/splits", b"<html>", "with no JSON"),
    ],
    ids=str,
)
def test_a_server_without_usable_tasks_is_refused_in_one_line(
    fake: FakeServer, url: str, path: str, answer: Any, said_of_it: str
) -> None:
    fake.answers[path] = answer
    with pytest.raises(DomainError) as error:
        domain(url).tasks("train", 1, 0)
    assert said_of_it in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "said_of_it"),
    [
        ({"url": "localhost:8080"}, "url is 'localhost:8080': write one such as"),
        ({"win": {}}, "win is"),
        ({"splits": {"train": "all", "in_domain": "all"}}, "would be trained on"),
        ({"key_variable": "NO_SUCH_KEY"}, "NO_SUCH_KEY is empty"),
        ({"timeout_seconds": 0}, "timeout_seconds: input should be greater than 0"),
    ],
)
def test_options_of_no_use_are_refused(options: dict[str, Any], said_of_it: str) -> None:
    with pytest.raises(DomainError, match=said_of_it):
        domain(**{"url": "http://localhost:1", **options})


def test_tasks_are_drawn_by_seed_and_held_out_by_split(url: str) -> None:
    own = domain(url)
    drawn = own.tasks("train", 4, 1)
    assert drawn == own.tasks("train", 4, 1)
    assert {task.data["split"] for task in own.tasks("in_domain", 9, 1)} == {"test"}
    with pytest.raises(DomainError, match=r"name the server's in domain\.options\.splits"):
        own.tasks("ood", 1, 0)


def test_a_domain_that_we_serve_is_played() -> None:
    with (
        Sessions(Odd(), lambda: EnvironmentPool(Odd(), {}, 0, 20.0), 8, 2, 1, 4) as sessions,
        served(OrsServer("odd", sessions).app()) as url,
    ):
        own = domain(url, splits={"train": "train", "in_domain": "in_domain"})
        [won] = played(own, Calling(call("respond", response="win"))).trajectories
        assert (won.outcome, won.reward, len(won.steps)) == (1, 1.0, 1)
        [lost] = played(own, Calling(call("respond", response="raise"))).trajectories
        assert (lost.outcome, lost.reward) == (-1, 0.0)
        unplayable = played(own, Calling(call("respond", response="outage")))
        assert len(unplayable.crashes) == 1
