"""Programs that are commands, run in a box whose only network access is the endpoint."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any, Literal

from pydantic import Field

from rlanything.domains.base import CommandWords, DomainError, DomainOptions
from rlanything.records import Task
from rlanything_agent.conversation import Conversation, Ending
from rlanything_agent.endpoint import AgentEndpoint, Door
from rlanything_agent.outcome import BadOutcome, last_line
from rlanything_sandbox.bpf import no_debuggers
from rlanything_sandbox.bubblewrap import (
    Shown,
    bubblewrap,
    no_bubblewrap,
    offline_box,
    refusal,
    resource_limits,
)

OutcomeOf = Literal["last_line", "exit_code"]
RELAY = Path(__file__).with_name("relay.py")
_SOCKET, _RELAY, _PORT = "/run/endpoint", "/run/relay.py", 8000
_SAID_BYTES = 65536
_TELLING = re.compile(r"\S.*(error|exception|panic|fatal|not found|no such|denied|cannot)", re.I)
_CLOSE_SECONDS = 5.0


class CommandSettings(DomainOptions):
    """Options of the domain `agent` for a program that is a command."""

    command: Annotated[CommandWords, Field(min_length=1)] | None = None
    """Words to run in place of `solve`, which find the endpoint in OPENAI_BASE_URL and
    OPENAI_API_KEY, or in the same variables of ANTHROPIC."""
    outcome: OutcomeOf = "last_line"
    """The outcome of a command: the `last_line` of its output, or its `exit_code`."""
    folder: str | None = None
    """Working directory of a command; None: the current one."""
    shown: Sequence[str] = ()
    """Further files and folders that a command can read."""
    variables: Mapping[str, Any] = Field(default_factory=dict)
    """Variables of a command's environment."""
    memory_mb: Annotated[int, Field(ge=64)] = 2048
    """Memory of each process of a command, and of its /tmp."""
    contained: bool = True
    """Whether a command runs in a box without network."""
    check: CommandWords = ()
    """Words to run in the box when the command and all that it started have ended: their
    output, or exit code, is the outcome in place of the command's."""


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """Settings with which a command is run."""

    words: Sequence[str]
    """The command line; `{instruction}` and `{id}` are replaced by the task's."""
    outcome: OutcomeOf
    """Source of the outcome: the last line of the output, or the exit code (0: won)."""
    folder: Path
    """Working directory; readable in the box, but not writable."""
    shown: Sequence[Path]
    """Further files and folders that the command can read."""
    variables: Mapping[str, str]
    """Additional environment variables."""
    memory_mb: int
    contained: bool
    """False runs the command like any program of the user's, with network access."""
    check: Sequence[str] = ()
    """Command that decides the outcome instead. It runs in the same box, once the main command and
    everything it started have ended."""


class Command:
    """A running command. Its standard input is the task, as one line of JSON."""

    def __init__(
        self,
        options: CommandOptions,
        task: Task,
        conversation: Conversation,
        endpoint: AgentEndpoint,
        door: Door,
    ) -> None:
        """Raises `DomainError` if the command does not exist or cannot be contained."""
        self._options = options
        self._conversation = conversation
        words = [_filled(word, task) for word in options.words]
        check = [_filled(word, task) for word in options.check]
        given = {"id": task.id, "instruction": task.instruction, "data": dict(task.data)}
        with tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(given).encode() + b"\n")
            stdin.seek(0)
            self._files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
            self._started, ready = os.pipe()
            try:
                self._process = self._begin(words, check, endpoint, door, stdin, ready)
            except BaseException as error:
                os.close(self._started)
                if isinstance(error, OSError):
                    raise DomainError(f"command {words[0]!r}: {error.strerror or error}") from error
                raise
            finally:
                os.close(ready)
        threading.Thread(target=self._watch, daemon=True).start()

    def end(self) -> None:
        """Kills the command and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_SECONDS)

    def held_up(self, seconds: float) -> bool:
        return False  # it is a separate process

    def _begin(
        self,
        words: list[str],
        check: list[str],
        endpoint: AgentEndpoint,
        door: Door,
        stdin: IO[bytes],
        ready: int,
    ) -> subprocess.Popen[bytes]:
        options = self._options
        address = f"http://127.0.0.1:{_PORT}/v1" if options.contained else endpoint.url
        variables = {
            **options.variables,
            "OPENAI_BASE_URL": address,
            "OPENAI_API_KEY": door.key,
            "ANTHROPIC_BASE_URL": address.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": door.key,
        }
        streams: dict[str, Any] = {
            "stdin": stdin,
            "stdout": self._files[0],
            "stderr": self._files[1],
            "start_new_session": True,
        }
        if not options.contained:
            # The endpoint is on this machine: bypass any proxy.
            direct = dict.fromkeys(("NO_PROXY", "no_proxy"), _without_proxy())
            streams |= {"env": {**os.environ, **direct, **variables}, "cwd": options.folder}
            return subprocess.Popen[bytes](words, **streams)
        program = bubblewrap()
        if program is None:
            raise DomainError(
                f"{no_bubblewrap()}, or set domain.options.contained=false if you trust the policy "
                "with this machine; a command is run in a box otherwise"
            )
        # Pass the settings through a file: everyone on the machine can read a command line.
        with (
            open(os.memfd_create("variables"), "w+b") as settings,
            open(os.memfd_create("filter"), "w+b") as filtered,
        ):
            filtered.write(no_debuggers() or b"")
            filtered.seek(0)
            for name, value in variables.items():
                settings.write(b"--setenv\0%b\0%b\0" % (name.encode(), value.encode()))
            settings.seek(0)
            given = settings.fileno(), filtered.fileno()
            words = _box(program, options, [*words], check, given, endpoint.socket_path, ready)
            streams |= {"env": {}, "cwd": "/", "pass_fds": [ready, *given]}
            return subprocess.Popen[bytes](words, **streams)

    def _watch(self) -> None:
        # Not reaped before `end`: nothing else can get the number of its group until then.
        status = -signal.SIGKILL
        with contextlib.suppress(ChildProcessError):  # `end` was faster
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            assert ended is not None
            status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        began = bool(os.read(self._started, 1)) or not self._options.contained
        os.close(self._started)
        printed, complaint = (_tail(file) for file in self._files)
        self._conversation.finish(_ended(self._options.outcome, status, began, printed, complaint))


def _ended(outcome: OutcomeOf, status: int, began: bool, printed: str, complaint: str) -> Ending:
    if not began:
        return Ending(fault=DomainError(refusal(complaint)))
    if outcome == "exit_code":
        return Ending(status == 0)
    if status:
        return Ending(
            fault=BadOutcome(f"its agent's command ended with {status}: {_complaint(complaint)}")
        )
    try:
        return Ending(last_line(printed))
    except BadOutcome as bad:
        return Ending(fault=bad)


def _complaint(stderr: str) -> str:
    """Returns the line that explains a failed command: the last one, or the last that names an
    error if the runtime prints its version or a stack trace below it."""
    lines = stderr.strip().splitlines() or ["it printed nothing to stderr"]
    telling = [line for line in lines if _TELLING.match(line)] or lines
    last = "" if telling[-1] == lines[-1] else f" ... {lines[-1].strip():.100}"
    return f"{telling[-1]:.300}{last}"


def _box(
    program: str,
    options: CommandOptions,
    words: Sequence[str],
    check: Sequence[str],
    given: tuple[int, int],
    server: Path,
    ready: int,
) -> list[str]:
    """Returns the command line of a box whose only network access is the endpoint.

    `program`: bwrap. `given`: files with its environment and its system call filter."""
    settings = ["--args", str(given[0]), "--as-pid-1"]
    if no_debuggers() is not None:
        settings += ["--seccomp", str(given[1])]
    more: list[Shown] = [(RELAY, PurePosixPath(_RELAY)), (server, PurePosixPath(_SOCKET))]
    limits = json.dumps(resource_limits(options.memory_mb))
    start = [sys.executable, "-I", "-S", _RELAY, _SOCKET, str(_PORT), str(ready), limits]
    start += [json.dumps(check), *words]
    folder, shown, memory = options.folder, options.shown, options.memory_mb
    return offline_box(program, "agent", folder, shown, memory, start, settings, more)


def _without_proxy() -> str:
    given = (os.environ.get("NO_PROXY"), os.environ.get("no_proxy"), "127.0.0.1")
    return ",".join(dict.fromkeys(filter(None, given)))


def _filled(word: str, task: Task) -> str:
    return word.replace("{instruction}", task.instruction).replace("{id}", task.id)


def _tail(file: IO[bytes]) -> str:
    with file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _SAID_BYTES))
        return file.read().decode("utf-8", "replace")


def command_options(settings: CommandSettings) -> CommandOptions:
    """Returns checked options. Raises `DomainError` for what cannot be run."""
    variables = settings.variables
    if settings.check and not settings.contained:
        raise DomainError("check needs a box: without one, leftover processes may survive")
    paths = [Path(place).absolute() for place in (settings.folder or ".", *settings.shown)]
    missing = next((path for path in paths if not path.exists()), None)
    if missing is not None:
        raise DomainError(f"{missing} does not exist: name existing paths in folder and shown")
    if any(value is None or isinstance(value, list | Mapping) for value in variables.values()):
        raise DomainError(
            f"variables is {variables!r:.80}: give each name a value, such as {{NAME: value}}, "
            "with a blank after the colon"
        )
    texts = {str(name): str(value) for name, value in variables.items()}
    if odd := next((name for name in texts if "\0" in name + texts[name] or "=" in name), None):
        raise DomainError(f"variables: {odd!r:.80} is not a name, or contains a NUL; remove it")
    return CommandOptions(
        settings.command or (),
        settings.outcome,
        paths[0],
        paths[1:],
        texts,
        settings.memory_mb,
        settings.contained,
        settings.check,
    )
