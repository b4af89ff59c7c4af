"""Programs on a SandboxFusion-style server, which misbehaves as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rlanything import backoff
from rlanything.domains.coding.sandbox import remote
from rlanything.domains.coding.sandbox.base import Job, Limits, SandboxUnavailable, Verdict
from rlanything.domains.coding.sandbox.remote import RemoteExecutor


def finished(stdout: str = "", code: int = 0, stderr: str = "") -> dict[str, Any]:
    run = {"status": "Finished", "execution_time": 0.25, "return_code": code}
    status = "Failed" if code else "Success"
    return {"status": status, "run_result": {**run, "stdout": stdout, "stderr": stderr}}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict[str, Any]] = []
        self.answers: deque[Any] = deque()
        """For the next requests: a status number, seconds of silence, text, or an object."""
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the game."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.bodies.append(body)
        # Doubles the number in stdin where nothing else was asked for.
        answer: Any = finished(f"{int(body['stdin'] or 0) * 2}\n")
        if server.answers:
            answer = server.answers.popleft()
        if isinstance(answer, float):
            time.sleep(answer)
            return
        status = answer if isinstance(answer, int) else 200
        text = answer if isinstance(answer, str) else json.dumps(answer)
        if self.path != "/run_code":
            status = 404
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(backoff, "FIRST_WAIT_SECONDS", 0.01)
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


JOB = Job("print(int(input()) * 2)", "21", "42", limits=Limits(cpu_seconds=2, memory_mb=99))


def test_the_server_gets_the_program_and_never_what_is_expected(server: Server) -> None:
    result = RemoteExecutor(server.url + "/").run(JOB)
    assert (result.verdict, result.stdout, result.seconds) == (Verdict.OK, b"42\n", 0.25)
    assert server.bodies == [
        {
            "code": JOB.program,
            "language": "python",
            "stdin": "21",
            "run_timeout": 6.0,
            "memory_limit_MB": 99,
        }
    ]


@pytest.mark.parametrize(
    ("answer", "verdict", "reason"),
    [
        (finished("43"), Verdict.WRONG, ""),
        (finished("42", code=3), Verdict.ERROR, "exit status 3"),
        (finished(code=1, stderr="  x\nMemoryError\n"), Verdict.MEMORY, "more than 99 MiB"),
        (finished("4" * (8 * 2**20 + 1)), Verdict.OUTPUT, "more than 8388608 bytes"),
        (
            {"status": "Failed", "run_result": {"status": "TimeLimitExceeded"}},
            Verdict.TIMEOUT,
            "more than 6 s",
        ),
    ],
    ids=lambda each: str(each)[:20],
)
def test_answers_become_verdicts(
    server: Server, answer: dict[str, Any], verdict: Verdict, reason: str
) -> None:
    server.answers.append(answer)
    result = RemoteExecutor(server.url).run(JOB)
    assert (result.verdict, result.reason) == (verdict, reason)


@pytest.mark.parametrize(
    "fault",
    [
        429,
        500,
        503,
        0.5,  # longer than the client waits
        "no JSON",
        "[]",
        {"status": "SandboxError", "message": "out of boxes", "run_result": None},
        {"status": "Success", "run_result": {"status": "Error"}},
    ],
    ids=str,
)
def test_what_may_pass_is_tried_again_and_then_broken_never_wrong(
    server: Server, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GRACE_SECONDS", 0.2 - JOB.limits.wall)
    executor = RemoteExecutor(server.url)
    server.answers += [fault] * 2
    assert executor.run(JOB).verdict is Verdict.OK
    assert len(server.bodies) == 3
    server.answers += [fault] * remote.TRIES
    result = executor.run(JOB)
    assert result.verdict is Verdict.BROKEN
    assert result.reason.startswith(f"{server.url}/run_code: ")


def test_a_server_that_is_not_there_is_broken(server: Server) -> None:
    server.shutdown()
    server.server_close()
    result = RemoteExecutor(server.url).run(JOB)
    assert result.verdict is Verdict.BROKEN
    assert "Connection refused" in result.reason


def test_a_refusal_names_the_url(server: Server) -> None:
    with pytest.raises(SandboxUnavailable, match="/nowhere/run_code answers 404"):
        RemoteExecutor(f"{server.url}/nowhere").run(JOB)
    with pytest.raises(SandboxUnavailable, match="begins with http"):
        RemoteExecutor("localhost:8080")


def test_many_runs_keep_their_order(server: Server) -> None:
    executor = RemoteExecutor(server.url, parallel=4)
    results = executor.run_all([Job("", str(n), str(2 * n)) for n in range(40)])
    executor.close()
    assert [int(each.stdout) for each in results] == [2 * n for n in range(40)]
