"""Real MCP servers, over stdio in their box and over HTTP: tools, scores, and every bad server."""

# The environment of `make test-ecosystems` alone has it.
# pyright: reportMissingImports=false
from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import rlanything as rl
from helpers import paths
from helpers.agents import said
from helpers.calling import call
from helpers.mcp_servers import HUGE, free_port
from rlanything.domains.base import DomainError, EpisodeError, StepResult
from rlanything.records import Completion, Task, Trajectory
from rlanything.roles.policy import LanguagePolicy
from rlanything.rollout.episodes import RolloutRequest, Rollouts, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything_gyms.tools.domain import ToolsDomain
from rlanything_gyms.tools.environment import ToolsEnvironment
from rlanything_gyms.tools.servers import McpFault

SOURCE = paths.TESTS / "helpers" / "mcp_servers.py"
START_SECONDS = 120.0
ROWS = [{"prompt": "Keep hello as a.", "wanted": "hello", "split": "train"}]


def program(kind: str, **options: Any) -> dict[str, Any]:
    """A server in its box, to which all folders of packages are shown: in these environments one
    is on top of another."""
    shown = [place for place in sys.path if place.endswith("site-packages")]
    words = [sys.executable, str(SOURCE), kind]
    return {"command": words, "folder": str(SOURCE.parent), "shown": shown, **options}


@contextmanager
def served(kind: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = free_port()
    words = [sys.executable, str(SOURCE), kind, str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and not _answers(port):
            assert process.poll() is None
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    import socket

    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def kept(servers: Sequence[Any], wanted: Sequence[str], **_: Any) -> list[float]:
    return [float(servers[0].call("notes", "read", {"name": "a"}) == wanted[0])]


def tools(server: dict[str, Any], **options: Any) -> ToolsDomain:
    usual = {"reward": kept, "tasks": ROWS, "timeout_seconds": START_SECONDS}
    return ToolsDomain(**{"mcp": {"notes": server}, **usual, **options})


@contextmanager
def begun(domain: ToolsDomain) -> Iterator[ToolsEnvironment]:
    environment = domain.environment()
    try:
        environment.reset(domain.tasks("train", 1, 0)[0])
        yield environment
    finally:
        environment.close()


HELLO = call("write", name="a", text="hello")


def played(domain: ToolsDomain, *answers: str) -> list[StepResult]:
    with begun(domain) as environment:
        return [environment.step(answer) for answer in answers]


def well_played(server: dict[str, Any]) -> None:
    answers = (HELLO, call("read", name="b"), call("write", name=3, text="x"), "done")
    wrote, missing, bad, ended = played(tools(server), *answers)
    assert (wrote.observation.text, wrote.valid) == ("[tool] kept a", True)
    assert missing.observation.text.startswith("[tool] error: ")
    assert bad.observation.text == "[tool] error: argument name: 3 is not of type 'string'"
    assert (missing.valid, bad.valid) == (False, False)
    assert (ended.outcome, ended.reward, ended.observation.text) == (
        *(1, 1.0),
        "The episode has ended.",
    )


def test_a_program_plays_in_its_box_and_every_episode_has_its_own() -> None:
    server = program("notes", variables={"TASK": "keep"})
    well_played(server)
    domain = tools({**server, "command": [*server["command"], "{id}"]})
    with begun(domain) as environment:
        request = environment.reset(domain.tasks("train", 1, 0)[0]).request
        assert request is not None
        offered = {tool["name"]: tool for tool in request.tools}
        assert [*offered] == ["write", "read", "where", "misbehave"]
        assert offered["write"]["description"] == "Keeps a note."
        assert offered["write"]["parameters"]["required"] == ["name", "text"]
        where = environment.step(call("where")).observation.text
        assert where == "[tool] keep, row-1, home False, network False"
        lost = environment.step("I know nothing")
        assert (lost.outcome, lost.valid) == (-1, True)  # nobody has kept a note here


def test_a_server_at_an_address_has_a_session_for_every_episode() -> None:
    with served("notes") as (url, _):
        well_played({"url": url})
        with begun(tools({"url": url})) as one, begun(tools({"url": url})) as other:
            one.step(HELLO)
            assert other.step(call("read", name="a")).valid is False
            assert one.step("done").outcome == 1


class Clock:
    def reset(self, **row: Any) -> None:
        self.asked = 0

    def ask(self) -> str:
        """Tells the time."""
        self.asked += 1
        return "noon"

    def get_reward(self) -> float:
        return float(self.asked)


def test_servers_and_a_class_are_offered_together_under_names_of_their_own() -> None:
    with served("notes") as (url, _):
        domain = tools({"url": url}, environment=Clock)
        _, ended = played(domain, call("ask") + HELLO.replace("write", "notes__write"), "done")
    assert (ended.reward, ended.outcome) == (2.0, 1)


def test_a_huge_result_is_cut_with_a_line_that_says_so() -> None:
    with served("huge") as (url, _):
        for server in (program("huge"), {"url": url}):
            cut, ended = played(tools(server), call("misbehave"), "done")
            assert cut.observation.text.endswith(
                f"\n[cut: the result has {HUGE:,} characters, only 16,384 are shown]"
            )
            assert len(cut.observation.text) < 17000
            assert ended.outcome == -1


def test_roots_sampling_and_elicitation_are_refused_and_counted() -> None:
    with served("asks") as (url, _):
        for server in (program("asks"), {"url": url}):
            asked, ended = played(tools(server), call("misbehave"), "done")
            assert asked.observation.text == (
                "[tool] List roots not supported; Sampling not supported; Elicitation not supported"
            )
            assert ended.observation.text.splitlines()[1:] == [
                f"(refused: notes {kind}, 1 times)"
                for kind in ("elicitation/create", "roots/list", "sampling/createMessage")
            ]


def test_a_server_that_breaks_its_own_schema_is_an_error_that_the_policy_reads() -> None:
    broken, ended = played(tools(program("lies")), call("misbehave"), "done")
    assert broken.observation.text.startswith("[tool] error: the server's result is invalid")
    assert "\n" not in broken.observation.text
    assert (broken.valid, ended.outcome) == (False, -1)


@pytest.mark.parametrize(
    ("kind", "seconds", "fault"),
    [
        ("hangs", 10.0, r"'notes' gave no answer to misbehave in time: .*timeout_seconds"),
        ("dies", START_SECONDS, r"'notes' ended \(the disk is gone\)"),
        ("floods", START_SECONDS, r"'notes' ended \(a message of over 134,217,728 bytes\)"),
    ],
)
def test_a_program_that_fails_in_a_call_is_an_unexplained_fault(
    kind: str, seconds: float, fault: str
) -> None:
    domain = tools(program(kind))
    with begun(domain) as environment:
        assert environment.step(HELLO).valid
        settings = environment._servers._settings
        environment._servers._settings = replace(settings, timeout_seconds=seconds)
        start = time.monotonic()
        with pytest.raises(McpFault, match=fault) as error:
            environment.step(call("misbehave"))
        assert kind != "hangs" or time.monotonic() - start < 2 * seconds
        assert "\n" not in str(error.value)
        environment._servers._settings = settings
        assert environment.reset(domain.tasks("train", 1, 0)[0]).request is not None


class Answering:
    """Gives these answers, one at each step."""

    def __init__(self, *answers: str) -> None:
        self.answers = answers

    def respond(self, episodes: Any, seeds: Any) -> list[Completion]:
        del seeds
        return [said(self.answers[len(episode.steps)]) for episode in episodes]

    def release_cache(self) -> None: ...


def rolled_out(server: dict[str, Any]) -> Rollouts:
    domain = tools(server)
    with EnvironmentPool(domain, {}, 0, START_SECONDS) as pool:
        task = domain.tasks("train", 1, 0)[0]
        policy = Answering(HELLO, call("misbehave"), "done")
        return rollout(policy, pool, [RolloutRequest(task.id, task, 0)], 4, 8)


def test_a_server_that_dies_in_a_call_is_replayed_and_lost_only_if_it_dies_again(
    tmp_path: Path,
) -> None:
    once = program("dies once", contained=False)
    once["command"].append(str(tmp_path / "died"))
    ended = rolled_out(once)
    assert (tmp_path / "died").exists()
    assert (ended.failures, ended.crashes) == ((), ())
    [trajectory] = ended.trajectories
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 3)
    again = rolled_out(program("dies"))
    assert [trajectory.outcome for trajectory in again.trajectories] == [-1]
    assert [crash.reason for crash in again.crashes] == [
        "McpFault: the MCP server 'notes' ended (the disk is gone): fix it"
    ]
    with served("dies") as (url, _):  # and nobody starts it again
        gone = rolled_out({"url": url})
    [failure] = gone.failures
    assert (failure.masked, gone.crashes) == (True, ())
    assert "start it" in failure.reason


def test_a_server_that_is_gone_is_not_the_policys_fault() -> None:
    with served("notes") as (url, process), begun(tools({"url": url})) as environment:
        environment.step(HELLO)
        process.kill()
        process.wait()
        with pytest.raises(EpisodeError, match=rf"at {url} fails .*start it") as error:
            environment.step(call("read", name="a"))
        assert error.value.lost is False
        with pytest.raises(EpisodeError, match="start it") as again:
            environment.reset(Task("row-1", "", data={"row": ROWS[0], "seed": 1}))
        assert again.value.lost is False


class Nonsense(BaseHTTPRequestHandler):
    """Answers anything with a page, or with more bytes than a message may have."""

    kind = "text/html"
    pieces = 1

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("content-type", self.kind)
        self.end_headers()
        try:
            for _ in range(self.pieces):
                self.wfile.write(b" " * 2**20)
        except OSError:
            return

    def log_message(self, format: str, *args: Any) -> None: ...


class Endless(Nonsense):
    kind = "application/json"
    pieces = 4096


@pytest.mark.parametrize("handler", [Nonsense, Endless])
def test_an_address_that_speaks_no_mcp_is_refused_before_the_run(handler: type[Nonsense]) -> None:
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        with pytest.raises(DomainError, match=r"the MCP server 'notes' at http.*it") as error:
            tools({"url": url}).tasks("train", 1, 0)
        assert "\n" not in str(error.value)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("server", "fault"),
    [
        (program("silent"), r"'notes' was not ready within 5 s: .*timeout_seconds"),
        (program("bad schema"), r"the schema of its tool 'misbehave' is invalid .*: fix it"),
        (program("notes", command=["no-such-server"]), r"no-such-server: No such file"),
        (program("notes", contained=False, command=["no-such-server"]), "'no-such-server': No suc"),
        ({"url": "localhost:8000"}, r"mcp\.notes\.url is 'localhost:8000': write http://"),
        ({}, r"mcp\.notes: write command=\[\.\.\.\] or url=\.\.\., not both"),
        ({"url": "http://x", "memory_mb": 99}, r"mcp\.notes\.memory_mb is for a command"),
        (program("notes", folder="/nowhere"), r"/nowhere does not exist"),
    ],
)
def test_servers_of_no_use_are_refused(server: dict[str, Any], fault: str) -> None:
    seconds = 5.0 if "silent" in str(server) else START_SECONDS
    with pytest.raises(DomainError, match=fault) as error:
        tools(server, timeout_seconds=seconds).tasks("train", 1, 0)
    assert "\n" not in str(error.value)


def judged(trajectory: Trajectory, index: int) -> int:
    return 1 if trajectory.steps[index].valid else -1


def test_a_run_over_a_server_trains_and_a_dying_server_loses_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    respond = LanguagePolicy.respond

    def calling(self: LanguagePolicy, episodes: Any, seeds: Any) -> list[Completion]:
        answers = respond(self, episodes, seeds)
        first = (HELLO, call("misbehave"), call("write", name="a", text="bye"))
        texts = [
            "done" if episode.steps else first[seed % 3]
            for episode, seed in zip(episodes, seeds, strict=True)
        ]
        return [replace(a, text=text, answer_at=0) for a, text in zip(answers, texts, strict=True)]

    monkeypatch.setattr(LanguagePolicy, "respond", calling)
    overrides = {
        "run_dir": tmp_path / "run",
        "policy.decoding": "free",
        "curriculum.adapt_tasks": False,
        "environment.workers": 0,
        "environment.parallel_episodes": 2,
        "loop.iterations": 1,
        "loop.tasks": 1,
        "loop.tasks_per_iteration": 1,
        "loop.rollouts_per_task": 6,
        "evaluation.episodes": 0,
    }
    domain = tools(program("dies"))
    judge = rl.FunctionJudge(judged)
    [iteration] = rl.Trainer("guess", domain=domain, judge=judge, overrides=overrides)
    played = {m.trajectory.steps[0].action: m.trajectory.outcome for m in iteration.judged}
    assert played['write({"name": "a", "text": "hello"})'] == 1
    assert {outcome for action, outcome in played.items() if "hello" not in str(action)} == {-1}
    assert len(iteration.judged) == 6
    assert iteration.metrics["rollouts/failures"] == 0
    assert iteration.metrics["rollouts/crashes"]
