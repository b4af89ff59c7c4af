"""Sets tasks up and scores them with desktop_env, in a box separate from the desktop's.

OSWorld's evaluators parse files that the policy made, and evaluate some of its text as Python. So
they run in namespaces without network and without the host's files, in a separate Python
environment, in processes that are killed after a timeout.
"""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from rlanything.domains.base import DomainError
from rlanything_osworld.machine import PORTS, DesktopRefusal, Machine
from rlanything_osworld.program import LineProgram, last_line
from rlanything_sandbox.bubblewrap import (
    ISOLATED,
    boxed,
    bubblewrap,
    no_bubblewrap,
    refusal,
    system,
)

PYTHON_VARIABLE = "RLANYTHING_OSWORLD_PYTHON"
START_SECONDS = 180.0
SETUP_SECONDS = 300.0
SCORE_SECONDS = 180.0
GRACE_SECONDS = 10.0
"""Seconds beyond a request's time limit after which the forking process is killed too."""
_HERE = Path(__file__).parent
_INSIDE, _SHARED = PurePosixPath("/opt/evaluators"), PurePosixPath("/opt/shared")
_SCRATCH = "/scratch"
"""Their folder for files; not /tmp, which may contain the Python environment."""
_ENVIRONMENT = {
    "HOME": _SCRATCH,
    "TMPDIR": _SCRATCH,
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONPATH": str(_SHARED),
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_REMEDY = f"run `make osworld`, or name a Python that has desktop-env in {PYTHON_VARIABLE}"


class EvaluationFault(DesktopRefusal):
    """A failed set-up or evaluation; the message is one line."""


def find_python() -> Path:
    """Returns the Python that has desktop_env: the one in the environment variable, otherwise the
    one from `make osworld`. Raises `DomainError` if it is missing."""
    named = os.environ.get(PYTHON_VARIABLE)
    path = Path(named) if named else Path(".venv-osworld/bin/python")
    nearby = _HERE.parents[3] / ".venv-osworld/bin/python"
    if not named and not path.is_file():
        path = nearby
    if not path.is_file():
        raise DomainError(f"OSWorld's evaluators need {path}, which is not there: {_REMEDY}")
    return path.absolute()


class Evaluators:
    """Sets tasks up and scores them (a `DesktopTasks`). Data contains `example`, a task in
    OSWorld's format, and `files`, the contents of the files that it names as `generated:NAME`.

    `python`: from `find_python`. `given`: a folder with the files that tasks would download, in one
    folder per task id. The process starts with the first task."""

    def __init__(self, python: Path, given: Path | None = None) -> None:
        self._python = python
        self._given = given
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._program: LineProgram | None = None

    def setup(self, data: Mapping[str, Any], desktop: Machine) -> None:
        """Raises `EvaluationFault`, and `DomainError` if the process cannot be started."""
        self._ask("set_up", data, desktop, SETUP_SECONDS)

    def score(self, data: Mapping[str, Any], desktop: Machine, last_action: str) -> float:
        """Returns the evaluator's score, from 0 to 1. Raises `EvaluationFault`."""
        answer = self._ask("score", data, desktop, SCORE_SECONDS, failed=last_action == "fail")
        score = answer.get("score")
        if not isinstance(score, float) or not math.isfinite(score):
            raise EvaluationFault(f"the evaluator answered {score!r} where a score was due")
        return min(max(score, 0.0), 1.0)

    def close(self) -> None:
        """Ends the process."""
        if self._program is not None:
            self._program.close()
            self._program = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _ask(
        self,
        call: str,
        data: Mapping[str, Any],
        desktop: Machine,
        seconds: float,
        failed: bool = False,
    ) -> dict[str, Any]:
        if self._program is None or self._program.ended():
            self._start()
        assert self._folder is not None
        for port in PORTS:
            # A separate name for the desktop's socket, in the folder that the box shows.
            name = Path(self._folder.name, f"{port}")
            name.unlink(missing_ok=True)
            os.link(desktop.socket_path(port), name)
            _open_to_box(name, 0o777)
        request = {
            "call": call,
            "example": data["example"],
            "files": data["files"],
            "desktop": str(desktop.pid),
            "size": desktop.size,
            "password": desktop.password,
            "failed": failed,
            "seconds": seconds,
        }
        answer = self._exchange(request, seconds + GRACE_SECONDS)
        if "error" in answer:
            raise EvaluationFault(str(answer["error"]))
        return answer

    def _exchange(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        assert self._program is not None
        try:
            return self._program.ask(request, seconds)
        except (OSError, ValueError) as fault:
            self.close()
            reason = f"desktop_env's process ended or did not answer in {seconds:g} s"
            raise EvaluationFault(reason) from fault

    def _start(self) -> None:
        self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="rlanything-evaluators-")
        sockets = Path(self._folder.name)
        _open_to_box(sockets, 0o755)
        self._program = LineProgram(_command(self._python, sockets, self._given), {}, "/")
        try:
            self._program.answer(START_SECONDS)
        except (OSError, ValueError) as fault:
            said = self._program.last_words()
            self.close()
            reason = refusal(said) if "bwrap" in said else f"{last_line(said)}: {_REMEDY}"
            raise DomainError(f"OSWorld's evaluators do not start: {reason}") from fault


def _open_to_box(place: Path, mode: int) -> None:
    """Lets the box use a file of this user. A box of root runs as a user of its own, so that the
    file is opened to all users."""
    if os.geteuid() == 0:
        place.chmod(mode)


def _command(python: Path, sockets: Path, given: Path | None) -> list[str]:
    program = bubblewrap()
    if program is None:
        raise DomainError(f"OSWorld's evaluators run in a box, and {no_bubblewrap()}")
    options = [*ISOLATED, "--clearenv", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    for name, value in _ENVIRONMENT.items():
        options += ["--setenv", name, value]
    shown, links = system()
    rest = [*links, "--proc", "/proc", "--dev", "/dev", "--size", str(2**30), "--tmpfs", _SCRATCH]
    rest += ["--remount-ro", "/", "--chdir", _SCRATCH, "--"]
    rest += [str(python), "-B", "-s", str(_INSIDE / "serve.py")]
    shown += [(path, PurePosixPath(path)) for path in _prefixes(python) if path.is_dir()]
    shown += [(_HERE / "evaluators", _INSIDE), (_HERE / "guest" / "relay.py", _SHARED / "relay.py")]
    shown += [(Path("/etc/ld.so.cache"), PurePosixPath("/etc/ld.so.cache"))]
    shown += [(sockets, PurePosixPath("/sockets"))]
    if given is not None:
        shown += [(given, PurePosixPath("/given"))]
    return boxed(program, options, shown, rest)


@cache
def _prefixes(python: Path) -> tuple[Path, ...]:
    """Returns the folders of an environment and of its base Python."""
    asked = [str(python), "-c", "import sys; print(sys.prefix); print(sys.base_prefix)"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DomainError(f"{python} does not run: {_REMEDY}")
    folders = dict.fromkeys(Path(line) for line in done.stdout.splitlines())
    return tuple(folder for folder in folders if not folder.is_relative_to("/usr"))
