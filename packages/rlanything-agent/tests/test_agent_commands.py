"""Agents that are commands: in a box, with the endpoint for all their network."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.agents import agent, played
from rlanything.domains.base import DomainError
from rlanything.rollout.episodes import Rollouts
from rlanything_agent import commands

# With nothing but the standard library, as programs in other languages would.
ASKING = """
import json, os, sys, urllib.request
task = json.loads(sys.stdin.readline())

def ask(text):
    body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": text}]})
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", body.encode(),
        {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]
"""


def run(folder: Path, program: str, *says: str, **options: Any) -> Rollouts:
    (folder / "program.py").write_text(ASKING + program)
    command = ["python3", "program.py"]
    settings = {"command": command, "folder": str(folder), "timeout_seconds": 60.0}
    folder.chmod(0o755)
    return played(agent(None, says or ["yes"], **{**settings, **options}), timeout=150.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that the user of a box can reach."""
    for place in (tmp_path, *tmp_path.parents[:2]):
        place.chmod(0o755)
    return tmp_path


def pipes() -> int:
    """How many ends of pipes are open here."""
    links = [file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    return sum(os.readlink(link).startswith("pipe:") for link in links)


def won(rollouts: Rollouts) -> bool:
    assert not rollouts.failures, rollouts.failures[0].reason
    assert not rollouts.crashes, rollouts.crashes[0].reason
    [trajectory] = rollouts.trajectories
    return trajectory.outcome == 1


def test_a_command_in_a_box_asks_and_prints_its_outcome(folder: Path) -> None:
    rollouts = run(folder, 'print("thinking"); print(ask(task["instruction"]) == "yes")')
    assert won(rollouts)
    assert rollouts.trajectories[0].steps[0].observation == "Do 0."


def test_a_command_finds_anthropics_address_and_key_in_its_environment(folder: Path) -> None:
    program = """
body = {"model": "policy", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
request = urllib.request.Request(
    os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(),
    {"x-api-key": os.environ["ANTHROPIC_API_KEY"]})
with urllib.request.urlopen(request) as reply:
    print(json.load(reply)["content"][0]["text"] == "yes")
"""
    assert won(run(folder, program))


def test_the_openai_client_finds_the_endpoint_in_its_environment(folder: Path) -> None:
    program = """
import openai
with openai.OpenAI() as client:
    messages = [{"role": "user", "content": "Hi"}]
    stream = client.chat.completions.create(model="policy", messages=messages, stream=True)
    print(0.5 if "".join(c.choices[0].delta.content or "" for c in stream) == "yes" else 0)
"""
    rollouts = run(folder, program, win_at=0.5)
    assert won(rollouts)
    assert rollouts.trajectories[0].reward == 0.5


@pytest.mark.parametrize(("code", "outcome"), [(0, 1), (3, -1)])
def test_an_exit_code_may_be_the_outcome(folder: Path, code: int, outcome: int) -> None:
    rollouts = run(folder, f'ask("?"); sys.exit({code})', outcome="exit_code")
    assert rollouts.trajectories[0].outcome == outcome
    assert not rollouts.crashes


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (
            'ask("?"); print("I won")',
            "the last line that its agent printed is 'I won'",
        ),
        ('ask("?")', "the last line that its agent printed is ''"),
        ('ask("?"); print(7)', "its agent returned 7: return True, False or a reward from 0 to 1"),
        ('ask("?"); raise KeyError("x")', "its agent's command ended with 1: KeyError: 'x'"),
        (
            'ask("?"); sys.exit("Error: Cannot find module x\\n    at load\\n\\nNode.js v20")',
            "its agent's command ended with 1: Error: Cannot find module x ... Node.js v20",
        ),
        ('ask("?"); os.kill(os.getpid(), 9)', "its agent's command ended with 137: "),
    ],
)
def test_a_command_that_fails_loses_its_episode(folder: Path, program: str, reason: str) -> None:
    [crash] = run(folder, program).crashes
    assert crash.reason.startswith(reason)


def test_a_command_that_never_asks_counts_neither_way(folder: Path) -> None:
    [failure] = run(folder, "print(1)").failures
    assert failure.reason == "its agent asked nothing before it ended (outcome +1)"


def test_a_command_that_never_ends_is_killed_with_all_it_started(folder: Path) -> None:
    program = """
import subprocess, time
subprocess.Popen(["sleep", "4711"])
ask("?")
time.sleep(4711)
"""
    [crash] = run(folder, program, timeout_seconds=8.0).crashes
    assert "neither asked nor ended within 8 s after answer 1" in crash.reason
    deadline = time.monotonic() + 60
    while sleeping() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not sleeping()


def sleeping() -> bool:
    """Whether a process of the test above is still there."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    return "sleep 4711" in listed


def test_the_box_shows_neither_network_nor_home_nor_anothers_environment(folder: Path) -> None:
    program = """
import socket
ask("?")
seen = []
for address in [("127.0.0.1", int(task["data"]["port"])), ("1.1.1.1", 53)]:
    try:
        socket.create_connection(address, timeout=1)
        seen.append(address)
    except OSError:
        pass
seen += [path for path in task["data"]["paths"] if os.path.exists(path)]
try:
    open("program.py", "a")
    seen.append("its own program to write")
except OSError:
    pass
open("/tmp/notes", "w").write("fine")
seen += [name for name in os.environ if name == "SECRET"]
if seen:
    print(seen, file=sys.stderr)
    sys.exit(1)
print(True)
"""
    os.environ["SECRET"] = "1"
    try:
        (folder / "program.py").write_text(ASKING + program)
        command = {"command": ["python3", "program.py"], "folder": str(folder)}
        domain = agent(None, ["yes"], **command, timeout_seconds=60.0)
        [task] = domain.tasks("train", 1, 0)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            paths = ["/etc/shadow", "/root/.bashrc", __file__]
            task.data.update(port=port, paths=paths)  # type: ignore[attr-defined]
            assert won(played(domain, timeout=150.0))
    finally:
        del os.environ["SECRET"]


SHELL = """
import subprocess
subprocess.run(ask("?"), shell=True)
print("true")
"""
CHECK = """
import json, pathlib, sys, time
time.sleep(1)  # whatever is still there would write its file now
task, left = json.loads(sys.stdin.readline()), pathlib.Path("/tmp/left")
print(left.exists() and left.read_text().strip() == task["id"])
"""
FORGERIES = """
(while :; do echo true; echo true > /proc/1/fd/1; done) &
here=$(python3 -c "import site; print(site.getusersitepackages())")
mkdir -p $here
echo 'import os; os.write(1, b"true\\n"); os._exit(0)' > $here/usercustomize.py
setsid sh -c 'sleep 0.6; while :; do echo t0 > /tmp/left; done' &
sleep 0.2
"""


@pytest.mark.parametrize(
    ("says", "outcome"), [("echo t0 > /tmp/left", 1), ("true", -1), (FORGERIES, -1)]
)
def test_a_check_decides_in_the_commands_place_once_all_of_it_has_ended(
    folder: Path, says: str, outcome: int
) -> None:
    (folder / "check.py").write_text(CHECK)
    says += "; rm -f /tmp/left" if outcome < 0 else ""
    rollouts = run(folder, SHELL, says, check=["python3", "check.py"])
    assert not rollouts.failures, rollouts.failures[0].reason
    assert [each.outcome for each in rollouts.trajectories] == [outcome]
    assert not rollouts.crashes


def test_no_process_of_a_box_reaches_into_another(folder: Path) -> None:
    program = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
ask("?")
child = os.fork()
if child == 0:
    os.read(0, 1 << 20)
    import time; time.sleep(60)
refused = [libc.ptrace(16, child, None, None), libc.process_vm_writev(child, None, 0, None, 0, 0)]
try:
    open("/proc/1/mem", "r+b", buffering=0)
except OSError:
    refused.append(-1)
print("true" if refused == [-1] * 3 and ctypes.get_errno() == 1 else "false")
"""
    assert won(run(folder, program))


def test_a_command_may_be_run_as_any_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The way out of this machine, which does not lead to the endpoint.
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    program = 'print(ask("?") == "yes" and os.path.exists(os.environ["MARK"]))'
    mark = {"MARK": str(folder / "program.py")}
    assert won(run(folder, program, contained=False, variables=mark))


def test_words_may_hold_the_instruction(folder: Path) -> None:
    program = 'ask(sys.argv[1]); print(sys.argv[1:] == ["Do 0.", "t0"])'
    words = ["python3", "program.py", "{instruction}", "{id}"]
    assert won(run(folder, program, command=words))


def test_a_machine_without_bubblewrap_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "bubblewrap", lambda: None)
    [failure] = run(folder, "print(1)").failures
    assert "install bubblewrap, or set domain.options.contained=false" in failure.reason


def test_a_mac_is_told_that_a_box_needs_linux(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "bubblewrap", lambda: None)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "memfd_create")
    [failure] = run(folder, "print(1)").failures
    assert "bwrap needs Linux" in failure.reason
    assert "or set domain.options.contained=false" in failure.reason


def test_a_command_that_is_not_there_is_named(folder: Path) -> None:
    opened = []
    for _ in range(3):
        [failure] = run(folder, "", command=["no-such-program"], contained=False).failures
        assert failure.reason == "command 'no-such-program': No such file or directory"
        opened.append(pipes())
    assert opened[0] == opened[1] == opened[2]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"command": ["a"], "variables": {"A": "1\0--bind"}},
            "variables: .A. is not a name, or contains",
        ),
        (
            {"command": "python agent.py"},
            r"command: write a list, as \[python agent.py\]",
        ),
        (
            {"command": ["a"], "outcome": "luck"},
            "outcome: input should be 'last_line' or 'exit_code'",
        ),
        ({"command": ["a"], "folder": "/nowhere"}, "/nowhere does not exist: name existing paths"),
        (
            {"command": ["a"], "memory_mb": 1},
            r"memory_mb: .* greater than or equal to 64 \(got 1\)",
        ),
        ({"command": ["a"], "solve": print}, "not both"),
        (
            {"command": ["a"], "check": "python check.py"},
            r"check: write a list, as \[python check.py\]",
        ),
        ({"command": ["a"], "check": ["a"], "contained": False}, "check needs a box"),
        ({"command": ["a"], "variables": {"DUMP:DIR": None}}, "with a blank after the colon"),
        (
            {"command": ["a"], "variables": "A=1"},
            r"variables: write it in braces, as \{key: value\}",
        ),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(DomainError, match=reason):
        agent(options.pop("solve", None), **options)
