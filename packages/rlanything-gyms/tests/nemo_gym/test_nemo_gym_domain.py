"""Episodes on a server that keeps to the contract of NeMo Gym: a session cookie, a path for each
tool, and a verdict on the whole response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response as OpenAIResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from helpers.agents import said
from helpers.calling import call
from helpers.serving import served
from rlanything.domains.base import DomainError
from rlanything.records import Completion
from rlanything.rollout.episodes import RolloutRequest, Rollouts, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything_gyms.nemo_gym.domain import NemoGymDomain

COUNT = {
    "type": "function",
    "name": "increment_counter",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}},
    "strict": True,
}
increment = partial(call, "increment_counter")
GET = {**COUNT, "name": "get_counter_value", "parameters": {"type": "object", "properties": {}}}


def row(**params: Any) -> dict[str, Any]:
    asked = [{"role": "user", "content": "add 1, then get the count"}]
    asked_for = {"input": asked, "tools": [COUNT, GET], **params}
    return {"responses_create_params": asked_for, "initial_count": 3, "expected_count": 4}


@dataclass
class Counters:
    """A resources server with a counter for each session."""

    counts: dict[str, int] = field(default_factory=dict)
    verified: list[Any] = field(default_factory=list)
    odd: dict[str, Any] = field(default_factory=dict)
    """By path: a status, `hang`, bytes, or the reward of a verdict."""

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self.answer, methods=["GET", "POST"])])

    async def answer(self, request: Request) -> Response:
        path = request.path_params["path"]
        body: Any = await request.json() if request.method == "POST" else None
        match self.odd.get(path):
            case int(status):
                return JSONResponse({"detail": "not\nnow"}, status)
            case "hang":
                await asyncio.sleep(30)
            case bytes(content):
                return Response(content)
        session = request.cookies.get("session")
        if path == "seed_session":
            assert session is None, "a session begins without the cookie of the last one"
            session = str(len(self.counts))
            self.counts[session] = body["initial_count"]
            answer = JSONResponse({})
            answer.set_cookie("session", session)
            return answer
        if path == "verify":
            assert session is not None
            self.verified.append(body)
            reward = float(body["expected_count"] == self.counts[session])
            return JSONResponse({**body, "reward": self.odd.get("reward", reward)})
        if session is None:
            return JSONResponse({}, 404)
        if path == "increment_counter":
            if not isinstance(body.get("count"), int):
                return JSONResponse({"detail": "count must be a number"}, 422)
            self.counts[session] += body["count"]
            return JSONResponse({"success": True})
        return JSONResponse({"count": self.counts[session]})


@pytest.fixture
def server() -> Counters:
    return Counters()


@pytest.fixture
def url(server: Counters) -> Iterator[str]:
    with served(server.app()) as url:
        yield url


def domain(url: str, folder: Path, *rows: Any, **options: Any) -> NemoGymDomain:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows or (row(),)))
    usual: dict[str, Any] = {"url": url, "tasks": str(path), "timeout_seconds": 5.0}
    if "held_out" not in options:
        usual["splits"] = {"train": 1.0}
    return NemoGymDomain(**{**usual, **options})


class Saying:
    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.asked: list[Any] = []

    def respond(self, episodes: Sequence[Any], seeds: Any) -> list[Completion]:
        del seeds
        self.asked += [episode.observation.request for episode in episodes]
        return [said(self.texts[len(episode.steps)]) for episode in episodes]

    def release_cache(self) -> None: ...


def played(domain: NemoGymDomain, *texts: str, max_steps: int = 5) -> Rollouts:
    with EnvironmentPool(domain, {}, 0, 20.0) as pool:
        task = domain.tasks("train", 1, 0)[0]
        attempts = [RolloutRequest(f"{task.id}/{n}", task, n) for n in range(2)]
        return rollout(Saying(*texts), pool, attempts, max_steps, 1)


def test_calls_reach_their_session_and_the_verdict_decides(
    server: Counters, url: str, tmp_path: Path
) -> None:
    own = domain(url, tmp_path)
    texts = [f"I add. {increment(count=1)}", call("get_counter_value"), "It is 4."]
    won, again = played(own, *texts).trajectories
    assert (won.outcome, won.reward, len(won.steps)) == (1, 1.0, 3)
    assert again.outcome == 1
    assert '{"success":true}' in won.steps[0].next_observation
    assert '{"count":4}' in won.steps[1].next_observation
    assert won.steps[2].next_observation == "The episode has ended."
    verified = server.verified[0]
    assert verified["initial_count"] == 3
    assert verified["responses_create_params"] == row()["responses_create_params"]
    kinds = [item["type"] for item in verified["response"]["output"]]
    one = ["function_call", "function_call_output"]
    assert kinds == ["message", *one, *one, "message"]
    calls = [item for item in verified["response"]["output"] if "call_id" in item]
    assert [calls[0]["call_id"], calls[2]["call_id"]] == [c["call_id"] for c in calls[1::2]]
    lost = played(own, increment(count=5), "Done.").trajectories[0]
    assert (lost.outcome, lost.reward) == (-1, 0.0)


def test_the_response_is_one_of_openais(server: Counters, url: str, tmp_path: Path) -> None:
    own = domain(url, tmp_path, row(tools=[]))
    played(own, "It is 4.")
    response = OpenAIResponse.model_validate(server.verified[0]["response"], strict=True)
    assert response.output_text == "It is 4."


def test_calls_are_made_one_at_a_time_where_the_row_says_so(
    server: Counters, url: str, tmp_path: Path
) -> None:
    texts = [increment(count=1) * 2, "Done."]
    assert played(domain(url, tmp_path), *texts).trajectories[0].outcome == -1
    single = domain(url, tmp_path, row(parallel_tool_calls=False))
    assert played(single, *texts).trajectories[0].outcome == 1
    output = server.verified[-1]["response"]["output"]
    assert [item["type"] for item in output].count("function_call") == 1


def test_a_servers_error_is_the_result_of_its_call(url: str, tmp_path: Path) -> None:
    own = domain(url, tmp_path)
    [trajectory, _] = played(own, increment(count="one"), call("verify"), "Done.").trajectories
    assert "count must be a number" in trajectory.steps[0].next_observation
    assert "there is no tool 'verify'" in trajectory.steps[1].next_observation
    assert [step.valid for step in trajectory.steps] == [False, False, True]


def test_a_horizon_is_verified_as_it_stands(server: Counters, url: str, tmp_path: Path) -> None:
    cut = domain(url, tmp_path, horizon=1)
    assert played(cut, increment(count=1)).trajectories[0].outcome == 1
    assert played(domain(url, tmp_path), *[increment(count=0)] * 5).trajectories[0].outcome == -1
    assert len(server.verified) == 2


@pytest.mark.parametrize(
    ("odd", "lost"),
    [
        ({"verify": 500}, True),
        ({"verify": "hang"}, True),
        ({"verify": b"\xff"}, True),
        ({"verify": b'{"reward": NaN}'}, True),
        ({"verify": b"[1]"}, True),
        ({"verify": b"x" * (9 << 20)}, True),
        ({"reward": "much"}, True),
        ({"reward": 7}, True),
        ({"increment_counter": "hang"}, True),
        ({"increment_counter": "hang", "": 503}, False),
        ({"verify": 503}, False),
        ({"seed_session": 500}, False),
    ],
    ids=str,
)
def test_a_server_that_fails_costs_its_own_episode(
    server: Counters, url: str, tmp_path: Path, odd: dict[str, Any], lost: bool
) -> None:
    own = domain(url, tmp_path, reward_range=[0, 1])
    own.tasks("train", 1, 0)
    server.odd = odd
    rollouts = played(own, increment(count=1), "Done.")
    assert [t.outcome for t in rollouts.trajectories] == ([-1, -1] if lost else [])
    faults = rollouts.crashes if lost else rollouts.failures
    assert len(faults) == 2
    assert "\n" not in str(faults[0])


@pytest.mark.parametrize(
    ("broken", "said_of_it"),
    [
        ([1], "a row is an object with responses_create_params"),
        ({"prompt": "hi"}, "a row is an object with responses_create_params"),
        (row(input=[]), "input must be a text or a list"),
        (row(input=[{"role": "robot", "content": "hi"}]), "input.0.role is 'robot'"),
        (row(input=[{"type": "item_reference", "id": "x"}]), "'item_reference', which is not"),
        (row(input=[{"role": "user", "content": [{"type": "input_image"}]}]), "images are not"),
        (row(tools=[{"type": "web_search"}]), "tools.0 is no function"),
        (row(tools=[{**GET, "name": "verify"}]), "'verify', no name of a tool"),
        (row(tools=[GET, GET]), "two tools of one name"),
        (row(tool_choice="required"), "tool_choice must be auto or none"),
        (row(previous_response_id="x"), "previous_response_id is not supported"),
    ],
)
def test_a_row_that_cannot_be_played_is_refused(
    tmp_path: Path, broken: Any, said_of_it: str
) -> None:
    with pytest.raises(DomainError, match=r"rows\.jsonl, row 2: ") as error:
        domain("http://localhost:1", tmp_path, row(), broken)
    assert said_of_it in str(error.value)


def test_settings_of_sampling_are_left_to_the_recipe(url: str, tmp_path: Path) -> None:
    given = row(temperature=0.6, max_output_tokens=99, model=None, text=None, tool_choice="none")
    own = domain(url, tmp_path, given)
    environment = own.environment()
    seen = environment.reset(own.tasks("train", 1, 0)[0])
    assert seen.request is not None
    assert seen.request.tools == ()
    environment.close()


def test_held_out_rows_are_another_files(url: str, tmp_path: Path) -> None:
    other = tmp_path / "validation.jsonl"
    other.write_text(json.dumps(row(input="held out")))
    own = domain(url, tmp_path, row(), row(), held_out=str(other))
    assert [len(own.tasks(split, 9, 0)) for split in ("train", "in_domain")] == [2, 1]
    assert own.tasks("in_domain", 1, 0)[0].instruction == "held out"


def test_options_of_no_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match="write one such as"):
        domain("localhost", tmp_path)
    with pytest.raises(DomainError, match="does not answer /seed_session"):
        domain("http://127.0.0.1:1", tmp_path).tasks("train", 1, 0)
