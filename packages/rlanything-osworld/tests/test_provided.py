"""Machines that a provider starts: a made-up server, and desktops of this machine behind it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from helpers.desktops import WITHOUT_DESKTOP, desktop, needs_application
from helpers.paths import PYTHONPATH, TESTS
from rlanything.domains.base import DomainError
from rlanything.records import Completion, Step
from rlanything_osworld import provided
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.evaluation import find_python
from rlanything_osworld.families import FAMILIES
from rlanything_osworld.machine import (
    PORTS,
    DesktopLost,
    DesktopRefusal,
    NoAnswer,
    exchange,
)
from rlanything_osworld.program import LineProgram, last_line
from rlanything_osworld.provided import (
    Place,
    ProvidedDesktop,
    ProvidedDesktops,
    ProviderOptions,
)
from rlanything_osworld.screen import read_screen
from rlanything_osworld.tasks import generated_task

WINDOW = {"number": 3, "title": "App", "box": [0, 0, 99, 99], "active": True, "managed": True}
TREE = "<desktop-frame/>"


class Server(ThreadingHTTPServer):
    """A machine's server that answers as it is told, and remembers what it should run."""

    answers: Mapping[str, Any]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.commands: list[list[str]] = []
        listed = json.dumps([[{**WINDOW, "pid": 1}], False])
        self.answers = {
            "/execute": {"returncode": 0, "output": listed, "error": ""},
            "/accessibility": {"AT": TREE},
        }

    def code(self) -> str:
        """The code that it was asked to run last."""
        return self.commands[-1][-1]


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        answer = json.dumps(self.server.answers.get(self.path)).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.commands.append(body["command"])
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def machine(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProvidedDesktop]:
    monkeypatch.setattr(provided, "LOOK_SECONDS", 0.01)
    ports = dict.fromkeys(PORTS, server.server_port)
    made = ProvidedDesktop(Place("127.0.0.1", ports, "word"), (100, 100), 1)
    yield made
    made.close()


def test_actions_become_code_of_the_original_pyautogui(
    server: Server, machine: ProvidedDesktop
) -> None:
    calls = [["write", "a<b"], ["hotkey", "ctrl", "s"], ["dragTo", 1, 2], ["scroll", -5, 3, 4]]
    machine.request("POST", "/act", {"calls": calls})
    assert server.code().splitlines()[2:] == [
        "pyautogui.write('a')",
        "pyautogui.hotkey('shift', ',')",
        "pyautogui.write('b')",
        "pyautogui.hotkey(*['ctrl', 's'])",
        "pyautogui.dragTo(*[1, 2], duration=0.5)",
        "pyautogui.scroll(*[-5, 3, 4])",
    ]
    with pytest.raises(DesktopRefusal, match="plain English letters"):
        machine.request("POST", "/act", {"calls": [["write", "\u00e4"]]})
    machine.request("POST", "/execute", {"command": ["python", "-c", "1"], "timeout": 30.0})
    assert server.commands[-1] == ["timeout", "30", "python", "-c", "1"]


def test_code_that_fails_in_a_machine_is_a_refusal_with_its_reason(
    server: Server, machine: ProvidedDesktop
) -> None:
    server.answers = {"/execute": {"returncode": 1, "output": "", "error": "x\nKeyError: 9\n"}}
    with pytest.raises(DesktopRefusal, match=r"^KeyError: 9$"):
        machine.request("POST", "/act", {"calls": [["click", 1, 2]]})


@pytest.mark.parametrize(
    "answers",
    [
        {"/execute": [1]},
        {"/execute": {"returncode": 0, "output": "no list", "error": ""}},
        {"/execute": {"returncode": 1, "output": "", "error": "No module named Xlib"}},
        {"/accessibility": {"AT": None}},
        {"/accessibility": {}},
        {"/accessibility": {"AT": "<a"}},
    ],
)
def test_a_server_that_answers_nonsense_ends_the_episode(
    server: Server, machine: ProvidedDesktop, answers: Mapping[str, Any]
) -> None:
    tree = json.loads(machine.request("GET", "/tree?quiet=10"))
    assert tree["windows"] == [{**WINDOW, "pid": 1}]
    server.answers = {**server.answers, **answers}
    with pytest.raises(DesktopLost):
        machine.request("GET", "/tree?quiet=10")


def test_a_machine_that_is_gone_ends_the_episode() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        ports = dict.fromkeys(PORTS, int(closed.getsockname()[1]))
    machine = ProvidedDesktop(Place("127.0.0.1", ports, ""), (100, 100), 1)
    with pytest.raises(DesktopLost, match="does not answer"):
        machine.request("GET", "/screenshot")
    machine.close()


@pytest.mark.parametrize("timer_runs", [True, False])
def test_a_silent_server_is_late_whichever_limit_is_met_first(
    monkeypatch: pytest.MonkeyPatch, timer_runs: bool
) -> None:
    if not timer_runs:
        monkeypatch.setattr(threading.Timer, "start", lambda timer: None)
    silent = socket.create_server(("127.0.0.1", 0))
    late = pytest.raises(NoAnswer, match=r"no answer to /ready in 0\.2 s")
    with silent, late as met:
        exchange(silent.getsockname()[:2], "GET", "/ready", None, 0.2)
    assert met.value.late


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"provider": "cloud"}, "provider is 'cloud': use one of namespaces, docker"),
        ({"provider_options": {"region": "x"}}, "namespaces have none"),
        ({"provider": "docker", "provider_options": {"cpu": 4}}, "is 'cpu': use one of path_to_vm"),
        ({"provider": "aws"}, "needs region, and snapshot_name"),
        ({"provider": "aws", "provider_options": {"path_to_vm": "i-1"}}, "leave it out"),
        ({"provider": "docker", "provider_options": {"screen_size": [1]}}, "give width and height"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(DomainError, match=fault):
        OSWorld(**options)


def python() -> Path:
    try:
        return find_python()
    except DomainError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(
    ("provider", "fault"),
    [("nowhere_at_all:Cloud", "No module named"), ("json:JSONDecoder", "TypeError")],
)
def test_a_provider_that_gives_no_machine_is_one_line(provider: str, fault: str) -> None:
    desktops = ProvidedDesktops(python(), ProviderOptions(provider))
    with pytest.raises(DomainError, match=rf"{provider} gives no machine \(.*{fault}") as raised:
        desktops.take()
    assert "\n" not in str(raised.value)


def test_two_environments_never_play_in_one_machine(tmp_path: Path) -> None:
    file = tmp_path / "Ubuntu.vmx"
    file.touch()
    with file.open() as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        desktops = ProvidedDesktops(python(), ProviderOptions("vmware", path_to_vm=str(file)))
        with pytest.raises(DomainError, match=r"Ubuntu\.vmx is in use by another environment"):
            desktops.take()


@pytest.mark.slow
@WITHOUT_DESKTOP
@needs_application("mousepad")
def test_an_expert_wins_on_a_machine_of_a_providers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    python()
    with desktop():
        pass  # or the test is skipped where there is none
    paths = filter(None, (str(TESTS), PYTHONPATH, os.environ.get("PYTHONPATH")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    options = {"region": "here", "screen_size": [1280, 800]}
    domain = OSWorld(provider="helpers.own_provider:OwnDesktops", provider_options=options)
    environment = domain.environment()
    task = generated_task("t", FAMILIES["editor-add-line"], 1, "end")
    try:
        environment.reset(task)
        assert environment.step("> done").reward == 0.0
        screen, steps, outcome = environment.reset(task).text, list[Step](), None
        while outcome is None:
            response = domain.expert(task, steps)
            assert response is not None
            result = environment.step(response)
            said, after = Completion.unsampled(response), result.observation.text
            steps.append(Step(screen, said, result.action, result.valid, after))
            screen, outcome = after, result.outcome
        assert outcome == 1
    finally:
        environment.close()
        domain.evaluators.close()


@WITHOUT_DESKTOP
@needs_application("pcmanfm")
def test_a_screen_reads_the_same_by_osworlds_requests_as_by_ours() -> None:
    with desktop() as own:
        own.request("POST", "/setup/launch", {"command": ["pcmanfm", "/usr/share"]})
        first = read_screen(json.loads(own.request("GET", "/tree?quiet=30")), own.size)
        place = Place("127.0.0.1", {port: own.forward(port) for port in PORTS}, "")
        foreign = ProvidedDesktop(place, own.size, own.pid)
        again = read_screen(json.loads(foreign.request("GET", "/tree?quiet=30")), own.size)
        foreign.close()
    assert "pcmanfm" in first.text or "/usr/share" in first.text
    assert (again.text, again.places) == (first.text, first.places)


def test_a_program_that_complains_at_length_still_answers(tmp_path: Path) -> None:
    code = "import sys; sys.stderr.write('x' * 200_000 + '\\nno space\\n'); print('{\"a\": 1}')"
    program = LineProgram([sys.executable, "-c", code], dict(os.environ), str(tmp_path))
    assert program.answer(30.0) == {"a": 1}
    assert last_line(program.last_words()) == "no space"
