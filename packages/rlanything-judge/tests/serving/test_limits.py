"""What strangers send to a served judge costs its other callers next to nothing."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import uvicorn
from starlette.testclient import TestClient
from typer.testing import CliRunner

from rlanything.cli import app
from rlanything.progress import progress_of
from rlanything.records import JudgedTrajectory
from rlanything.roles.judges.base import StepJudge
from rlanything_judge.commands.serve import ServeError
from rlanything_judge.learning import open_learning_judge
from rlanything_judge.serving import bodies, connections
from rlanything_judge.serving.app import judge_app
from rlanything_judge.serving.batching import BatchingJudge
from rlanything_judge.serving.connections import LimitedConnection
from rlanything_judge.serving.learning import LearningJudge
from rlanything_judge.source import JudgeSource

JSON = {"Content-Type": "application/json"}
STEP = {"observation": "", "response": "", "next_observation": ""}
EPISODE = {"task": "t", "trajectory": "a", "instruction": "Act.", "steps": [STEP]}


class Silent(StepJudge):
    """A judge with nothing to say."""

    samples = 1

    def judge(self, trajectories, seed, on_judgements=None):  # type: ignore[no-untyped-def]
        return [JudgedTrajectory(each, ((),) * len(each.steps)) for each in trajectories]


@contextmanager
def served(key: str | None = None, local: bool = True) -> Iterator[int]:
    """The port of a judge that is served."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        BatchingJudge(Silent(), 4096) as batching,
    ):
        made = judge_app("mine", batching, key, local=local)
        config = uvicorn.Config(made, http=LimitedConnection, ws="none", log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def answer(
    port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request(method, path, body or None, {**JSON, **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read().decode()


def begun(port: int, text: str) -> socket.socket:
    """A connection on which some of a request was sent."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=30)
    opened.sendall(text.encode())
    return opened


def test_a_key_is_looked_at_before_any_of_the_body_is_read() -> None:
    with served("secret") as port:
        sent = "POST /judge HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\n"
        with begun(port, sent) as waiting:
            assert b"401" in waiting.recv(1000)
        for path in ("/judge", "/outcomes", "/nothing"):
            assert answer(port, "POST", path, b"x")[0] == 401
            assert answer(port, "POST", path, b"x", {"Authorization": "Bearer secrets"})[0] == 401
        assert answer(port, "POST", "/judge", b"x", {"Authorization": "Bearer secret"})[0] == 422
        assert answer(port, "GET", "/health")[0] == 200


def test_a_name_that_was_pointed_at_this_machine_is_refused() -> None:
    with served() as port:
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[x"):
            assert answer(port, "POST", "/judge", b"{}", {"Host": host})[0] == 403
        for host in ("127.0.0.1", f"localhost:{port}", "127.9.9.9:1", "[::1]:80"):
            assert answer(port, "POST", "/judge", b"{}", {"Host": host})[0] == 422
    with served(local=False) as port:
        assert answer(port, "POST", "/judge", b"{}", {"Host": "judge.my.lab"})[0] == 422


def test_half_a_request_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 1.0)
    monkeypatch.setattr(bodies, "BODY_SECONDS", 1.0)
    with served() as port:
        line = "POST /judge HTTP/1.1\r\nHost: localhost\r\n"
        with begun(port, "") as silent, begun(port, line) as head:
            assert (silent.recv(9), head.recv(9)) == (b"", b"")
        with begun(port, f"{line}Content-Length: 9\r\n\r\n{{") as body:
            assert b"408" in body.recv(1000)
        whole = json.dumps({"trajectories": [EPISODE]})
        rest = f"Content-Type: application/json\r\nContent-Length: {len(whole)}\r\n\r\n{whole}"
        with begun(port, line + rest) as again:
            assert b"200 OK" in again.recv(1000)
            again.sendall(line.encode())
            while left := again.recv(1000):
                assert b"HTTP" not in left


def test_who_has_waited_longest_with_half_a_request_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    with served() as port:
        held = [begun(port, "POST /judge HT") for _ in range(3)]
        time.sleep(0.1)
        assert answer(port, "GET", "/health")[0] == 200
        assert held[0].recv(9) == b""
        for each in held:
            each.close()


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"trajectories": [{**EPISODE, "steps": [{}] * 1024}] * 128}),
        "[" + "{}," * 1_000_000 + "{}]",
        '{"trajectories": [' + '""' * 1_000_000,
        '{"trajectories": [' + "[" * 1_000_000,
        "[" * 50_000,
        '{"trajectories": [' + "1" * 1_000_000 + "]}",
        '{"trajectories": [' + " " * 10_000_000,
        '{"trajectories": ["' + "\\\\" * 1_000_000 + '"]}',
        "\ud800".encode("utf-16", "surrogatepass").decode("latin-1"),
    ],
)
def test_a_body_that_makes_much_work_of_little_is_refused_in_a_few_words(text: str) -> None:
    with BatchingJudge(Silent(), 8) as batching:
        client = TestClient(judge_app("mine", batching, None))
        started = time.process_time()
        refused = client.post("/judge", content=text.encode(), headers=JSON)
        assert refused.status_code == 422
        assert len(refused.text) < 2000
        assert time.process_time() - started < 3


def test_bodies_that_are_too_much_together_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_HELD", 1000)
    with BatchingJudge(Silent(), 8) as batching:
        client = TestClient(judge_app("mine", batching, None))
        large = {"trajectories": [{**EPISODE, "instruction": "x" * 2000}]}
        assert client.post("/judge", json=large).status_code == 503
        assert client.post("/judge", json={"trajectories": [EPISODE]}).status_code == 200


def test_outcomes_have_a_smaller_limit_and_may_not_contradict() -> None:
    with BatchingJudge(Silent(), 8) as batching:
        client = TestClient(judge_app("mine", batching, None))
        many = {"outcomes": [{"task": "t" * 2000, "outcome": 1}] * 1000}
        assert client.post("/outcomes", json=many).status_code == 413
        both = {"outcomes": [{"task": "t", "outcome": 1}, {"task": "t", "outcome": -1}]}
        refused = client.post("/outcomes", json=both)
        assert refused.status_code == 422
        assert "both won and lost" in refused.text


def test_names_with_slashes_are_no_other_names(tmp_path) -> None:  # type: ignore[no-untyped-def]
    source = JudgeSource("nano-guess", ("threads=1", "judge.max_tokens=4"))
    with open_learning_judge(source, tmp_path / "out", progress_of(False)) as run:
        learning = LearningJudge(run, 99, print)
        with BatchingJudge(learning, 64) as batching:
            client = TestClient(judge_app("mine", batching, None, learning))
            twice = {"trajectories": [EPISODE, EPISODE]}
            assert client.post("/judge", json=twice).status_code == 422
            named = [{"task": "a/b", "trajectory": "c"}, {"task": "a", "trajectory": "b/c"}]
            asked = {"trajectories": [{**EPISODE, **name} for name in named]}
            assert client.post("/judge", json=asked).status_code == 200
            outcomes = {"outcomes": [{**named[0], "outcome": 1}, {**named[1], "outcome": -1}]}
            assert client.post("/outcomes", json=outcomes).json()["unknown"] == []
        ended = {one.trajectory.task.id: one.trajectory.outcome for one in learning._ended}
        assert ended == {"a/b": 1, "a": -1}


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_nobody_but_this_machine_trains_a_judge_without_a_key(host: str) -> None:
    words = [
        "serve",
        "--judge",
        "nano-guess",
        "--learn",
        "--out",
        "x",
        "--port",
        "0",
        "--host",
        host,
    ]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, ServeError)
    assert "could train the judge; choose a key" in str(done.exception)
    assert "--key-variable JUDGE_KEY" in str(done.exception)


def test_a_judge_that_others_may_ask_without_a_key_is_warned_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["serve", "--judge", "nowhere.yaml", "--port", "0", "--host", "0.0.0.0"]
    done = CliRunner().invoke(app, words)
    assert "nowhere.yaml" in str(done.exception)
    assert "anybody who reaches this address may use the judge" in done.output


def test_the_service_describes_itself_without_the_internet() -> None:
    with BatchingJudge(Silent(), 8) as batching:
        client = TestClient(judge_app("mine", batching, "secret"))
        assert client.get("/").text == "rlanything judge: POST /judge; /docs says how to ask\n"
        page = client.get("/docs").text
        assert "POST /judge" in page
        assert "Bearer KEY" in page
        assert "http" not in page
        assert client.get("/redoc").status_code == 401
        sent = client.get("/openapi.json").json()["paths"]["/judge"]["post"]["requestBody"]
        schema = sent["content"]["application/json"]["schema"]
        steps = schema["properties"]["trajectories"]["items"]["properties"]["steps"]
        assert steps["items"]["required"] == ["observation", "response", "next_observation"]
