"""A judge as a service: many callers, one judge, and nobody can stop it for the others."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from rlanything.records import Completion, JudgedTrajectory, Judgement, Trajectory
from rlanything.roles.judges.base import OnJudgements, StepJudge
from rlanything_judge.serving import app as serving
from rlanything_judge.serving.app import judge_app
from rlanything_judge.serving.batching import BatchingJudge


class Opinionated(StepJudge):
    """Likes steps that say please; holds up until it may go on."""

    samples = 2

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.seeds: list[int] = []
        self.may = threading.Event()
        self.began = threading.Event()
        self.may.set()

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        seed: int,
        on_judgements: OnJudgements | None = None,
    ) -> list[JudgedTrajectory]:
        self.batches.append([each.id for each in trajectories])
        self.seeds.append(seed)
        self.began.set()
        assert self.may.wait(30)
        if any("break" in step.observation for each in trajectories for step in each.steps):
            raise ValueError("it broke\nin two lines")
        return [JudgedTrajectory(each, tuple(map(opinion, each.steps))) for each in trajectories]


def opinion(step: Any) -> tuple[Judgement, ...]:
    score = 1 if "please" in step.response else -1
    return tuple(
        Judgement(Completion.unsampled(f"so \\boxed{{{each}}}"), each) for each in (score, 0)
    )


def episode(task: Any = "t", trajectory: Any = "a", **changes: Any) -> dict[str, Any]:
    step = {"observation": "a room", "response": "please > look", "next_observation": "more"}
    made = {"task": task, "trajectory": trajectory, "instruction": "Be polite."}
    return {**made, "steps": [step, {**step, "response": "look"}], **changes}


@pytest.fixture
def judge() -> Opinionated:
    return Opinionated()


@pytest.fixture
def client(judge: Opinionated) -> Iterator[TestClient]:
    with BatchingJudge(judge, 8) as batching:
        yield TestClient(judge_app("mine", batching, None))
        judge.may.set()


def ask(client: TestClient, *episodes: dict[str, Any], **more: Any) -> Any:
    return client.post("/judge", json={"trajectories": [*episodes], **more})


def test_every_step_comes_back_with_scores_reasons_and_their_mean(client: TestClient) -> None:
    answer = ask(client, episode(), episode(7, 1))
    assert answer.status_code == 200
    first, second = answer.json()["trajectories"]
    assert (first["task"], second["task"], second["trajectory"]) == ("t", "7", "1")
    assert first["steps"] == [
        {"scores": [1, 0], "judgements": ["so \\boxed{1}", "so \\boxed{0}"], "reward": 0.5},
        {"scores": [-1, 0], "judgements": ["so \\boxed{-1}", "so \\boxed{0}"], "reward": -0.5},
    ]
    health = client.get("/health").json()
    assert health == {
        **{"judge": "mine", "trajectories": 2, "judgements": 8, "unreadable": 4},
        **{"waiting": 0, "updates": None},
    }
    assert "/judge" in client.get("/openapi.json").json()["paths"]


def test_who_waits_together_is_judged_together_by_seed(
    client: TestClient, judge: Opinionated
) -> None:
    judge.may.clear()
    with ThreadPoolExecutor(8) as callers:
        first = callers.submit(ask, client, episode("first"))
        assert judge.began.wait(30)
        others = [callers.submit(ask, client, episode(f"{n}"), seed=n % 2) for n in range(6)]
        while client.get("/health").json()["waiting"] < 6:
            pass
        judge.may.set()
        for number, other in enumerate(others):
            assert other.result().json()["trajectories"][0]["task"] == f"{number}"
        assert first.result().status_code == 200
    assert judge.batches[0] == ["first/a"]
    assert sorted(map(sorted, judge.batches[1:])) == [
        ["0/a", "2/a", "4/a"],
        ["1/a", "3/a", "5/a"],
    ]
    assert judge.seeds[1] != judge.seeds[2]


def test_what_breaks_the_judge_is_said_to_its_caller_and_the_next_is_served(
    client: TestClient,
) -> None:
    step = {"observation": "break", "response": "", "next_observation": ""}
    broken = ask(client, episode(steps=[step]))
    assert broken.status_code == 500
    assert broken.json()["detail"] == r"these episodes could not be judged (it broke\nin two lines)"
    assert ask(client, episode()).status_code == 200


def test_too_many_who_wait_are_sent_away(client: TestClient, judge: Opinionated) -> None:
    judge.may.clear()
    with ThreadPoolExecutor(4) as callers:
        begun = callers.submit(ask, client, episode())
        assert judge.began.wait(30)
        waiting = callers.submit(ask, client, *[episode(n) for n in range(8)])
        while client.get("/health").json()["waiting"] < 8:
            pass
        refused = ask(client, episode())
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
        judge.may.set()
        assert begun.result().status_code == waiting.result().status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"trajectories": []},
        {"trajectories": [episode(steps=[])]},
        {"trajectories": [episode(steps=[{"observation": "a"}])]},
        {"trajectories": [episode(task=None)]},
        {"trajectories": [episode()], "seed": "x"},
        {"trajectories": [episode()], "seed": math.nan},
        {"trajectories": [episode(task="\ud800")]},
    ],
)
def test_what_is_no_request_is_refused_with_its_place(client: TestClient, given: Any) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post("/judge", content=json.dumps(given), headers=headers)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][0] == "body"
    assert answer.json()["detail"][0]["type"] not in ("content_type", "json_invalid")


def test_a_body_beyond_the_limit_is_not_kept(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MOST_BYTES", 1 << 20)
    large = ask(client, episode(instruction="x" * (2 << 20)))
    assert large.status_code == 413
    assert "limit of 1 MiB" in large.json()["detail"]
    assert ask(client, episode()).status_code == 200


def test_a_key_is_asked_for_where_there_is_one(judge: Opinionated) -> None:
    with BatchingJudge(judge, 8) as batching:
        client = TestClient(judge_app("mine", batching, "secret"))
        for wrong in ("", "secret", "Bearer wrong", "Bearer secrets"):
            headers = {"Authorization": wrong} if wrong else {}
            assert (
                client.post("/judge", json={"trajectories": [episode()]}, headers=headers)
            ).status_code == 401
        assert judge.batches == []
        client.headers["Authorization"] = "Bearer secret"
        assert ask(client, episode()).status_code == 200


def test_who_waits_at_the_end_is_let_go(judge: Opinionated) -> None:
    judge.may.clear()
    with BatchingJudge(judge, 8) as batching:
        begun = batching.ask([], 0)
        assert judge.began.wait(30)
        waiting = batching.ask([], 1)
        judge.may.set()
        assert begun.result(30) == []
    assert waiting.cancelled() or waiting.done()


def rollout(*output: Any, **more: Any) -> dict[str, Any]:
    """A rollout as NeMo Gym's agents send it to be verified."""
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    asked = {"input": [{"role": "user", "content": "Be polite."}], "tools": [tool]}
    return {"responses_create_params": asked, "response": {"output": [*output]}, **more}


def message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content}


LOOK = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
SEEN = {"type": "function_call_output", "call_id": "c", "output": "a room"}


def test_a_rollout_of_nemo_gym_is_verified(judge: Opinionated, client: TestClient) -> None:
    assert client.post("/seed_session", json={"expected_answer": 3}).json() == {}
    sent = rollout(LOOK, SEEN, message("more, please \ud800"), expected_answer=float("nan"))
    body = json.dumps(sent).encode()
    answer = client.post("/verify", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    given = answer.json()
    assert given["step_rewards"] == [-0.5, 0.5]
    assert given["reward"] == 0
    assert given["expected_answer"] is None
    assert given["response"] == sent["response"]
    assert judge.batches == [[judge.batches[0][0]]]


def test_a_rollout_with_a_deeply_nested_key_is_refused_before_it_is_judged(
    judge: Opinionated, client: TestClient
) -> None:
    deep = "[" * 900 + "]" * 900
    body = f'{json.dumps(rollout(message("more, please")))[:-1]}, "deep": {deep}}}'
    answer = client.post("/verify", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, "nested too deeply" in answer.text) == (422, True)
    assert judge.batches == []


def test_what_is_no_rollout_is_not_verified(client: TestClient) -> None:
    lone = rollout(SEEN)
    for sent in (
        [],
        {},
        {"response": {"output": []}},
        rollout(),
        lone,
        rollout({"type": "message"}),
    ):
        answer = client.post("/verify", json=sent)
        assert answer.status_code == 422, answer.text
        assert "\\n" not in answer.text
