"""Agents' programs on scripted answers, without a model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anthropic
import httpx2
from starlette.testclient import TestClient

from rlanything.domains.base import Episode
from rlanything.domains.requests import RequestsRefused, TooLong
from rlanything.records import Completion, Trajectory
from rlanything.rollout.episodes import RolloutRequest, Rollouts, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything_agent.domain import AgentDomain

Asked = list[Episode]
SECONDS = 60.0
"""Time limits of clients: a busy machine changes no result."""


def said(text: str) -> Completion:
    """A completion whose tokens are the text's bytes."""
    ids = tuple(text.encode())
    return Completion((1, 2, 3), ids, (-0.5,) * len(ids), ((),) * len(ids), "stop", text)


class Bridge(httpx2.Client):
    """A client of the libraries that speaks to an application in this process."""

    def __init__(self, client: TestClient) -> None:
        def send(request: httpx2.Request) -> httpx2.Response:
            headers = {k: v for k, v in request.headers.items() if k != "content-length"}
            reply = client.request(
                request.method, str(request.url), content=request.read(), headers=headers
            )
            return httpx2.Response(reply.status_code, headers=reply.headers, content=reply.content)

        super().__init__(transport=httpx2.MockTransport(send))


class Scripted:
    """Answers in turn with what each task's data say, the last of it for ever; "refuse: WHY" is a
    refusal."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.refused = 0

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        del seeds
        texts = [self._text(episode) for episode in episodes]
        reasons = {i: t[8:] for i, t in enumerate(texts) if t.startswith("refuse: ")}
        if reasons:
            self.refused += 1
            raise RequestsRefused(reasons)
        self.requests += [episode.observation.request for episode in episodes]
        return [said(text) for text in texts]

    def release_cache(self) -> None: ...

    def _text(self, episode: Episode) -> str:
        texts = episode.task.data.get("says", ["yes"])
        return texts[min(len(episode.steps) + self.refused, len(texts) - 1)]


class Narrow(Scripted):
    """Refuses a chat with "long" in its first message as too long."""

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        requests = [episode.observation.request for episode in episodes]
        long = {
            i: TooLong("a prompt of 9 tokens is more than 8")
            for i, request in enumerate(requests)
            if request is not None and "long" in request.messages[0].content
        }
        if long:
            raise RequestsRefused(long)
        return super().respond(episodes, seeds)


class Waiting(Scripted):
    """A policy that answers when the program lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def respond(self, episodes: Any, seeds: Any) -> Any:
        assert self.go.wait(SECONDS)
        return super().respond(episodes, seeds)


def agent(
    solve: Callable[..., Any] | str | None, *says: Sequence[str], **options: Any
) -> AgentDomain:
    """A domain with one task for each list of answers."""
    rows: list[Mapping[str, Any]] = [
        {"id": f"t{i}", "instruction": f"Do {i}.", "data": {"says": list(texts)}}
        for i, texts in enumerate(says or [["yes"]])
    ]
    return AgentDomain(
        tasks=rows, solve=solve, **{"splits": {"train": 1.0}, "timeout_seconds": 5.0, **options}
    )


def played(
    domain: AgentDomain,
    max_steps: int = 6,
    workers: int = 0,
    policy: Any = None,
    timeout: float = 30.0,
) -> Rollouts:
    """Rollouts of every task, in the order of their ids."""
    tasks = sorted(domain.tasks("train", 100, 0), key=lambda task: task.id)
    with EnvironmentPool(domain, {}, workers, timeout) as pool:
        requests = [RolloutRequest(task.id, task, 0) for task in tasks]
        return rollout(policy or Scripted(), pool, requests, max_steps, 8)


def won(solve: Any, *says: str, policy: Any = None, **options: Any) -> Trajectory:
    """The one trajectory of a program that returned True."""
    domain = agent(solve, says or ["yes"], timeout_seconds=SECONDS, **options)
    rollouts = played(domain, policy=policy, timeout=2 * SECONDS)
    assert not rollouts.failures, rollouts.failures[0].reason
    assert not rollouts.crashes, rollouts.crashes[0].reason
    [trajectory] = rollouts.trajectories
    assert trajectory.outcome == 1
    return trajectory


async def ask(client: Any, *contents: str, **options: Any) -> Any:
    """One request, of user messages alone."""
    messages = [{"role": "user", "content": content} for content in contents]
    return await client.chat.completions.create(model="policy", messages=messages, **options)


def claude(client: Any, **options: Any) -> anthropic.AsyncAnthropic:
    """Anthropic's client for the endpoint of an episode's client."""
    address = str(client.base_url).removesuffix("/v1/")
    own = anthropic.DefaultAsyncHttpxClient(trust_env=False)
    settings = {"max_retries": 0, "timeout": SECONDS, **options}
    return anthropic.AsyncAnthropic(
        base_url=address, api_key=client.api_key, http_client=own, **settings
    )


async def post(client: Any, path: str, body: Any, **headers: str) -> httpx2.Response:
    """A request of a client of nobody's, with OpenAI's or Anthropic's header for its key."""
    key = {"authorization": f"Bearer {client.api_key}"}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with httpx2.AsyncClient(trust_env=False, timeout=SECONDS) as own:
        return await own.post(
            f"{client.base_url}{path}", content=content, headers={**key, **headers}
        )
