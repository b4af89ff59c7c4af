"""Programs on a SandboxFusion-style server, which misbehaves as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from helpers.hostile_answers import (
    ENDLESS,
    HEAD,
    NO_ANSWER,
    SLOW,
    Respond,
    body,
    endlessly,
    redirect,
)
from rlanything import backoff
from rlanything.domains.base import EpisodeError
from rlanything_coding.domain import Coding
from rlanything_coding.sandbox import remote
from rlanything_coding.sandbox.base import (
    Job,
    Limits,
    RunResult,
    SandboxUnavailable,
    Verdict,
)
from rlanything_coding.sandbox.remote import RemoteExecutor


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
        """For the next requests: a status, seconds of silence, text, an object, or a function."""
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
        if callable(answer):
            answer(self)
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
        2.0,  # longer than the client waits
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
    patience = 0.5 if fault == 2.0 else 5.0
    monkeypatch.setattr(remote, "GRACE_SECONDS", patience - JOB.limits.wall)
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


@pytest.mark.parametrize("url", ["http://me:secret@host/a", "http://host/a?key=secret"])
def test_an_address_that_cannot_be_used_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(SandboxUnavailable, match="http://host: a sandbox server") as caught:
        RemoteExecutor(url)
    assert "secret" not in str(caught.value)


def test_many_runs_keep_their_order(server: Server) -> None:
    executor = RemoteExecutor(server.url, parallel=4)
    results = executor.run_all([Job("", str(n), str(2 * n)) for n in range(40)])
    executor.close()
    assert [int(each.stdout) for each in results] == [2 * n for n in range(40)]


@pytest.fixture
def hasty(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that gets two tries of a second."""
    monkeypatch.setattr(remote, "GRACE_SECONDS", 1.0 - JOB.limits.wall)
    monkeypatch.setattr(remote, "TRIES", 2)
    return server


SMALL_JOB = replace(JOB, limits=replace(JOB.limits, output_bytes=5000))


def outcome(server: Server, answer: Any) -> RunResult:
    """The result where every try gets this answer, checked to be one that can be shown and kept."""
    server.answers.clear()
    server.answers += [answer] * remote.TRIES
    begun = time.monotonic()
    result = RemoteExecutor(server.url).run(SMALL_JOB)
    assert time.monotonic() - begun < 5
    assert result.reason.isprintable()
    assert len(result.reason) < 500
    json.dumps(result.to_json(), allow_nan=False).encode()
    return result


HOSTILE = {**SLOW, **ENDLESS, **NO_ANSWER}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_server_breaks_a_run_in_time_and_nothing_else(
    hasty: Server, answer: Respond
) -> None:
    result = outcome(hasty, answer)
    assert result.verdict is Verdict.BROKEN
    assert result.reason.endswith(", 2 times")
    said = result.reason.removeprefix(f"{hasty.url}/run_code: it ")
    if answer in SLOW.values():
        assert said.startswith("did not answer within 1 s")
    else:
        assert said.startswith(("sent ", "cannot be", "has status none", "did not answer"))


@pytest.mark.parametrize(
    "wait", ["1000000000", "9" * 400, "1e9", "inf", "nan", "-1", "soon", "\x00"]
)
def test_no_wait_that_a_server_asks_for_hangs_a_run(hasty: Server, wait: str) -> None:
    head = f"HTTP/1.1 503 x\r\nRetry-After: {wait}\r\n".encode()
    result = outcome(hasty, body(b"", head))
    assert result.verdict is Verdict.BROKEN
    too_long = "it answers 503 and asks to wait 1000000000 s"
    assert result.reason.endswith(too_long if wait == "1000000000" else "it answers 503, 2 times")


def changed(**run: Any) -> str:
    answer = finished("42")
    answer["run_result"] |= run
    return json.dumps(answer)


UNUSABLE = {
    **{
        f"execution_time {value!r}"[:30]: changed(execution_time=value)
        for value in ("abc", [1], {}, True, -1, 1e308, float("inf"), float("nan"), 10**400)
    },
    **{
        f"return_code {value!r}"[:30]: changed(return_code=value)
        for value in ("0", None, True, 0.0, 2**40)
    },
    **{f"stdout {value!r}": changed(stdout=value) for value in (1, [], {"a": 1}, True)},
    "stderr [1]": changed(stderr=[1]),
    "status []": changed(status=[]),
    "run []": {**finished(), "run_result": []},
    "a refusal of 2.4 MB": {"status": "SandboxError", "message": "no \x1b[31m box " * 200_000},
    "a message of objects": {"status": "SandboxError", "message": [{}] * 1000},
}


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE)
def test_an_answer_of_wrong_types_is_broken(hasty: Server, answer: Any) -> None:
    assert outcome(hasty, answer).verdict is Verdict.BROKEN
    assert len(hasty.bodies) == 3  # the last one with another program


def test_what_a_program_prints_never_makes_its_run_broken(hasty: Server) -> None:
    lone = outcome(hasty, changed(stdout="42 \ud800", stderr="\udfff"))
    assert (lone.verdict, lone.stdout) == (Verdict.WRONG, b"42 \xed\xa0\x80")
    assert outcome(hasty, changed(stdout="42 \udcff")).stdout == b"42 \xff"
    # It prints more than the server can send: known by the text, at which the answer breaks off.
    for printed in ("stdout", "stderr"):
        begin = f'{{"status": "Success", "run_result": {{"{printed}": "'.encode()
        for piece in (b"4" * 2**16, b'\\"' * 2**15, b"\\u0000" * 2**13):
            result = outcome(hasty, endlessly(HEAD + b"\r\n" + begin, piece))
            assert (result.verdict, result.reason) == (Verdict.OUTPUT, "more than 5000 bytes")
    # Nor does it pretend so: quotes of its own are escaped.
    fake = json.dumps('"stdout": "' + "4" * 10).encode()
    assert outcome(hasty, endlessly(HEAD + b"\r\n", fake)).verdict is Verdict.BROKEN


@pytest.mark.parametrize("status", [301, 307, 308])
def test_a_redirect_is_refused_and_names_the_place(server: Server, status: int) -> None:
    with pytest.raises(SandboxUnavailable) as caught:
        outcome(server, redirect(status, "http://user:pw@evil.example:8080/run_code?a=b"))
    assert f"answers {status} and points to evil.example:8080, and programs" in str(caught.value)
    assert len(server.bodies) == 2  # the second with another program
    for location in ("/v2", "http://[::1", "//", "\x1b[31m", "x" * 60_000):
        with pytest.raises(SandboxUnavailable, match="points to another path") as caught:
            outcome(server, redirect(status, location))
        assert len(str(caught.value)) < 500


def test_a_refusals_reason_is_cut_to_a_line(server: Server) -> None:
    with pytest.raises(SandboxUnavailable) as caught:
        outcome(server, body(b"", b"HTTP/1.1 400 " + b"no\x1b[31m " * 5000 + b"\r\n"))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
RUN = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["Finished", "Error", "TimeLimitExceeded"]) | JSON,
        "return_code": st.integers(-300, 300) | JSON,
        "execution_time": JSON,
        "stdout": JSON,
        "stderr": JSON,
    },
)
ANSWER = st.fixed_dictionaries(
    {"status": st.sampled_from(["Success", "Failed", "SandboxError"]) | JSON},
    optional={"run_result": RUN | JSON, "message": JSON},
)


@given(st.one_of(ANSWER, JSON).map(json.dumps) | st.binary(max_size=40))
@hypothesis_settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
def test_any_body_is_a_result(monkeypatch: pytest.MonkeyPatch, said: str | bytes) -> None:
    raw = said.encode() if isinstance(said, str) else said
    answered = SimpleNamespace(status=200), raw
    monkeypatch.setattr(RemoteExecutor, "_post", lambda *given: answered)
    monkeypatch.setattr(remote, "TRIES", 1)
    result = RemoteExecutor("http://nowhere").run(JOB)
    assert result.reason.isprintable()
    json.dumps(result.to_json(), allow_nan=False).encode()


def test_the_main_process_goes_on_where_the_server_does_not(
    hasty: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GRACE_SECONDS", 1.0)
    domain = Coding(sandbox=hasty.url)
    [task] = domain.tasks("train", 1, 0)
    solution = domain.expert(task, ())
    assert solution is not None
    hasty.answers += [changed(execution_time="abc")] * 99
    test = "```input\n1\n```\n```output\n1\n```"
    assert domain.run_tests(task, [solution, "none"], [test]) == [[0], [-1]]


@pytest.mark.parametrize("status", [403, 413, 500])
def test_what_a_server_refuses_of_one_program_alone_is_that_programs_error(
    server: Server, status: int
) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        refused = server.bodies[-1]["code"] == JOB.program
        text = b"{}" if refused else json.dumps(finished("42\n")).encode()
        handler.send_response(status if refused else 200)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    server.answers.extend([answer] * 10)
    result = RemoteExecutor(server.url).run(JOB)
    assert result.verdict is Verdict.ERROR
    assert result.reason.endswith("; another program ran")


@pytest.fixture
def impatient(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that is asked for a second."""
    monkeypatch.setattr(remote, "GRACE_SECONDS", 1.0 - JOB.limits.wall)
    monkeypatch.setattr(remote, "TRIAL_SECONDS", 1.0)
    monkeypatch.setattr(remote, "SILENT_SECONDS", 0.5)
    return server


def test_a_silent_server_is_refused_in_a_line_and_not_asked_by_every_run(impatient: Server) -> None:
    impatient.answers += [3.0] * 99
    executor = RemoteExecutor(impatient.url, parallel=4)
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable, match=r"did not answer within 1 s, nor a trial") as it:
        executor.run_all([JOB] * 4)
    executor.close()
    assert len(str(it.value).splitlines()) == 1
    asked = len(impatient.bodies)
    for _ in range(50):
        with pytest.raises(SandboxUnavailable, match="did not answer"):
            executor.run(JOB)
    assert len(impatient.bodies) == asked
    assert time.monotonic() - began < 30


def test_a_silent_server_is_asked_again_after_a_while(
    impatient: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "REMEMBERED_SECONDS", 0.0)
    impatient.answers += [3.0] * 2
    executor = RemoteExecutor(impatient.url)
    with pytest.raises(SandboxUnavailable):
        executor.run(JOB)
    assert executor.run(JOB).verdict is Verdict.OK


def test_a_program_to_which_alone_a_server_is_silent_has_failed(impatient: Server) -> None:
    impatient.answers += [3.0, finished("42\n")]
    result = RemoteExecutor(impatient.url).run(JOB)
    assert result.verdict is Verdict.ERROR
    assert result.reason.endswith("did not answer within 1 s; another program ran")


def test_episodes_on_a_silent_server_could_not_be_played(
    impatient: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GRACE_SECONDS", 1.0 - 3.5)
    domain = Coding(sandbox=impatient.url)
    [task] = domain.tasks("train", 1, 0)
    environment = domain.environment()
    environment.reset(task)
    impatient.answers += [9.0] * 99
    with pytest.raises(EpisodeError, match=r"there is no sandbox: .* did not answer") as caught:
        environment.step(f"```python\n{JOB.program}\n```")
    assert not caught.value.lost
