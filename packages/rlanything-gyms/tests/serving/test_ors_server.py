"""A domain as an ORS server: its requests, what it refuses, and calls that are asked for again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from helpers.command import refused
from helpers.odd_domain import LONG, Odd
from rlanything.domains.base import Capabilities, DomainError
from rlanything.rollout.workers import EnvironmentPool
from rlanything_agent.domain import AgentDomain
from rlanything_gyms.serving import sessions as serving
from rlanything_gyms.serving.guard import DomainGuard
from rlanything_gyms.serving.ors import MOST_BYTES, OrsServer
from rlanything_gyms.serving.sessions import MOST_CHARACTERS, Sessions


def played(most: int = 2, workers: int = 0) -> Sessions:
    return Sessions(Odd(), lambda: EnvironmentPool(Odd(), {}, workers, 30.0), 3, 240, 1, most)


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    with played() as made:
        yield made


@pytest.fixture
def client(sessions: Sessions) -> Iterator[TestClient]:
    with TestClient(OrsServer("Odd", sessions).app()) as client:  # one event loop for all requests
        yield client


def begun(client: TestClient, name: str = "a", index: int = 0) -> Any:
    body = {"env_name": "odd", "task_spec": {"split": "train", "index": index}}
    return client.post("/create", json=body, headers={"X-Session-ID": name})


def called(client: TestClient, response: Any, name: str = "a", **more: Any) -> Any:
    body = {"name": "respond", "input": {"response": response}, **more}
    return client.post("/odd/call", json=body, headers={"X-Session-ID": name})


def events(answer: Any) -> list[tuple[str, str]]:
    """Reads events as the standard's client does, which strips the data of each."""
    found: list[tuple[str, str]] = []
    for block in answer.text.split("\r\n\r\n"):
        lines = dict(line.split(":", 1) for line in block.split("\r\n") if line)
        if lines.get("event"):
            found.append((lines["event"].strip(), lines["data"].lstrip()))
    return found


def output(answer: Any) -> Any:
    assert answer.status_code == 200, answer.text
    whole = "".join(data for name, data in events(answer) if name in ("chunk", "end"))
    return json.loads(whole)["output"]


def test_splits_and_tasks_are_places_without_the_tasks_data(client: TestClient) -> None:
    assert client.get("/list_environments").json() == ["odd"]
    assert client.get("/splits").json() == client.get("/odd/splits").json()
    kinds = {split["name"]: split["type"] for split in client.get("/odd/splits").json()}
    assert kinds == {"train": "train", "in_domain": "test"}
    assert client.post("/odd/num_tasks", json={"split": "train"}).json() == {"num_tasks": 3}
    tasks = client.post("/odd/tasks", json={"split": "train"}).json()["tasks"]
    assert tasks[1] == {"split": "train", "index": 1, "id": "train-1"}
    one = client.post("/odd/task", json={"split": "train", "index": 1}).json()["task"]
    some = client.post("/odd/task_range", json={"split": "train", "start": -2}).json()["tasks"]
    assert (one, some) == (tasks[1], tasks[1:])


def test_an_episode_is_played_to_its_reward(client: TestClient) -> None:
    assert begun(client).json() == {"sid": "a"}
    text, image = client.get("/odd/prompt", headers={"X-Session-ID": "a"}).json()
    assert "A door." in text["text"]
    assert text["detail"] == {"choices": ["open", "leave"]}
    assert (image["type"], image["mimeType"]) == ("image", "image/png")
    first = output(called(client, "look"))
    assert (first["reward"], first["finished"], first["metadata"]["valid"]) == (None, False, False)
    last = output(called(client, "win"))
    assert (last["reward"], last["finished"]) == (1.0, True)
    assert last["metadata"]["measure"] == 0.75
    assert "is over" in events(called(client, "win"))[-1][1]


def test_an_episode_is_lost_at_the_step_limit_and_by_a_fault(client: TestClient) -> None:
    begun(client)
    rewards = [output(called(client, "look"))["reward"] for _ in range(3)]
    assert rewards == [None, None, 0.0]
    begun(client, "b")
    lost = output(called(client, "raise", "b"))
    assert (lost["reward"], lost["finished"]) == (0.0, True)


def test_a_fault_that_no_response_caused_is_an_error_and_no_reward(client: TestClient) -> None:
    assert begun(client, "broken", 2).status_code == 500
    begun(client)
    assert events(called(client, "outage"))[-1] == (
        "error",
        "the episode failed: the disk is full",
    )
    assert begun(client, "b").status_code == 200


def test_long_results_come_in_pieces_that_keep_their_spaces(client: TestClient) -> None:
    begun(client)
    answer = called(client, "long")
    assert len(events(answer)) > 4
    assert output(answer)["blocks"][0]["text"] == LONG


def test_a_call_asked_for_again_is_played_once(client: TestClient) -> None:
    begun(client)
    [(_, task_id), *_] = events(called(client, "look"))
    again = called(client, "anything", task_id=task_id)
    assert output(again)["finished"] is False
    assert output(called(client, "look"))["finished"] is False
    assert output(called(client, "look"))["finished"] is True
    assert called(client, "look", task_id=task_id).status_code == 404


def test_sessions_are_limited_and_idle_ones_make_room(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begun(client).status_code == 200
    assert begun(client).status_code == 400
    assert begun(client, "b").status_code == 200
    full = begun(client, "c")
    assert (full.status_code, full.headers["retry-after"]) == (503, "5")
    assert "raise --sessions" in full.json()["detail"]
    client.post("/delete", headers={"X-Session-ID": "b"})
    assert begun(client, "c").status_code == 200
    monkeypatch.setattr(serving, "IDLE_SECONDS", -1.0)
    assert begun(client, "d").status_code == 200
    assert called(client, "look").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/create", {"split": "train"}, 422),
        ("/create", {"split": "train", "index": 0, "task_spec": {"split": "x", "index": 0}}, 422),
        ("/create", {"split": "train", "index": True}, 422),
        ("/create", {"split": "train", "index": 99}, 400),
        ("/create", {"split": "train", "index": -1}, 400),
        ("/create", {"split": "secret", "index": 0}, 400),
        ("/create", {"split": "train", "index": 0, "env_name": "other"}, 404),
        ("/create", {"split": "train", "index": 0, "toolset_name": "web"}, 400),
        ("/odd/task_range", {"split": "train", "start": "0"}, 422),
        ("/odd/tasks", [1], 422),
        ("/odd/tasks", {"split": "train", "more": 1}, 422),
        ("/other/tasks", {"split": "train"}, 404),
        ("/odd/call", {"name": "respond", "input": []}, 422),
    ],
)
def test_a_bad_request_is_refused_in_one_line(
    client: TestClient, path: str, body: Any, status: int
) -> None:
    answer = client.post(path, json=body, headers={"X-Session-ID": "a"})
    assert answer.status_code == status
    assert "\n" not in answer.text


def test_bodies_that_are_no_json_or_too_long_are_refused(client: TestClient) -> None:
    for body, status in ((b"{", 400), (b"\xff", 400), (b"[" * 99_999, 400)):
        assert client.post("/odd/tasks", content=body).status_code == status
    assert client.post("/odd/tasks", content=b" " * (MOST_BYTES + 1)).status_code == 413
    assert client.post("/create", json={"split": "train", "index": 0}).status_code == 400
    begun(client)
    for given in ({"response": 3}, {}, {"response": "a", "more": 1}):
        body = {"name": "respond", "input": given}
        answer = client.post("/odd/call", json=body, headers={"X-Session-ID": "a"})
        assert '"ok":false' in events(answer)[-1][1]
    assert "at most" in events(called(client, "a" * (MOST_CHARACTERS + 1)))[-1][1]
    assert output(called(client, "win"))["reward"] == 1.0


def test_a_worker_process_plays_the_same() -> None:
    with played(workers=1) as sessions:
        client = TestClient(OrsServer("odd", sessions).app())
        begun(client)
        assert output(called(client, "win"))["reward"] == 1.0


def test_only_the_key_and_this_machine_are_let_in(sessions: Sessions) -> None:
    app = OrsServer("odd", sessions).app()
    keyed = TestClient(DomainGuard(app, "secret", local=False))
    assert keyed.get("/odd/splits").status_code == 401
    for headers in ({"X-API-Key": "secret"}, {"Authorization": "Bearer secret"}):
        assert keyed.get("/odd/splits", headers=headers).status_code == 200
    local = TestClient(DomainGuard(app, None, local=True))
    assert local.get("/odd/splits", headers={"Host": "evil.example"}).status_code == 403
    for host in ("localhost:80", "127.0.0.1", "[::1]:80"):
        assert local.get("/odd/splits", headers={"Host": host}).status_code == 200
        other = {"Host": host, "Origin": "https://evil.example"}
        assert local.get("/odd/splits", headers=other).status_code == 403


def test_a_domain_whose_program_asks_the_policy_is_refused() -> None:
    domain = AgentDomain(tasks=[{"id": "a", "instruction": "b"}], solve=print)
    with pytest.raises(DomainError, match="its episodes ask the policy themselves"):
        Sessions(domain, pytest.fail, 1, 1, 0, 1)


def test_a_domain_in_which_several_roles_act_is_refused() -> None:
    class Race(Odd):
        @property
        def capabilities(self) -> Capabilities:
            return replace(super().capabilities, players=("rival",))

    with pytest.raises(DomainError, match="a client would also play rival"):
        Sessions(Race(), pytest.fail, 1, 1, 0, 1)


def test_the_command_refuses_what_it_cannot_serve(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("serve-domain", "guess", "--port", "0", "--allow-code")
    said = refused(monkeypatch, capsys, *command, "--host", "0.0.0.0")
    assert "add --key-variable DOMAIN_KEY" in said
    said = refused(monkeypatch, capsys, *command, "--key-variable", "NO_SUCH_KEY")
    assert "NO_SUCH_KEY is empty" in said
