"""Sets tasks up and scores them with desktop_env's own controllers and evaluators.

Runs in a separate environment, and imports nothing from the library. Each line of the input is a
request in JSON, each line of the output its answer. Data from a desktop comes from the policy, so
every request runs in its own forked process with limits; slow imports happen once, before. The only
network access is the desktop, through sockets in a folder of the host.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
import types
import uuid
from pathlib import Path
from typing import Any, TextIO

import stubs

MEMORY = 6 * 2**30
"""Bytes of address space that one request may use."""
LARGEST_FILE = 2**29
PROCESSES = 64
ADOPT_ORPHANS, DUMPABLE = 36, 4
"""Options of `prctl`."""
MOST_DESKTOPS = 64
"""Largest number of desktops whose folders are kept."""
CACHE, GIVEN, SOCKETS = Path("/scratch/cache"), Path("/given"), Path("/sockets")
PORTS = (5000, 9222, 8080)
LARGEST_ANSWER = 2**20


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # evaluators print
    libc = ctypes.CDLL(None)
    libc.prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    libc.prctl(DUMPABLE, 0, 0, 0, 0)  # no request may read or write this process's memory
    load()
    _say(answers, {"ready": True})
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    for line in sys.stdin:
        request = json.loads(line)
        answer = _forked(request, answers)
        if request["call"] == "score":  # what it fetched may be large, and others need the room
            shutil.rmtree(_cache(request).parent, ignore_errors=True)
        _say(answers, answer)


def load() -> None:
    """Does the slow imports."""
    stubs.install()
    for name in ("desktop_env.desktop_env", "documents"):
        importlib.import_module(name)


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(f"{json.dumps(answer)}\n")
    answers.flush()


def _forked(request: dict[str, Any], answers: TextIO) -> dict[str, Any]:
    """Returns the answer of a process forked for the request, or an error if the process dies or is
    late."""
    theirs, ours = os.pipe()
    process = os.fork()
    if process == 0:
        # Only the parent process talks to the host.
        os.close(0)
        answers.close()
        _limit(request["seconds"])
        answer = _answer(request)
        with contextlib.suppress(OSError):
            os.write(ours, json.dumps(answer).encode()[:LARGEST_ANSWER])
        os._exit(0)
    os.close(ours)
    said = _read(theirs, time.monotonic() + request["seconds"])
    _end_children()
    if said is None:
        return {"error": f"no answer in {request['seconds']:g} s"}
    try:
        return json.loads(said)
    except ValueError:
        return {"error": "the process ended without an answer"}


def _end_children() -> None:
    """Ends everything that a request left running; orphans are children of this process too."""
    while True:
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                parent = Path(f"/proc/{int(name)}/stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == os.getpid():
                    os.kill(int(name), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _read(pipe: int, deadline: float) -> bytes | None:
    """Returns everything written until the pipe closes, or None if that takes too long."""
    said = b""
    with os.fdopen(pipe, "rb", 0) as stream:
        while select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]:
            data = stream.read(65536)
            if not data:
                return said
            said += data
    return None


def _limit(seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return _CALLS[request["call"]](request)
    except Exception as fault:  # controllers and evaluators may raise anything
        said = " ".join(str(fault).split())
        return {"error": f"{type(fault).__name__}: {said}"[:500]}


def _set_up(request: dict[str, Any]) -> dict[str, Any]:
    _forget()
    cache = _cache(request)
    shutil.rmtree(cache.parent, ignore_errors=True)
    cache.mkdir(parents=True)
    _place_files(request, cache)
    _environment(request).reset(request["example"])
    # Files that scoring fetches must not be left over from an earlier time.
    shutil.copytree(cache, _kept(cache))
    return {"done": True}


def _score(request: dict[str, Any]) -> dict[str, Any]:
    cache = _cache(request)
    kept = _kept(cache)
    if not kept.is_dir():  # the process that did the set-up has ended in the meantime
        kept.mkdir(parents=True)
        _place_files(request, kept)
    shutil.rmtree(cache, ignore_errors=True)
    shutil.copytree(kept, cache)
    environment = _environment(request)
    environment._set_task_info(request["example"])
    environment.setup_controller.reset_cache_dir(environment.cache_dir)
    environment.action_history.append("FAIL" if request["failed"] else "DONE")
    return {"score": float(environment.evaluate())}


def _environment(request: dict[str, Any]) -> Any:
    """Returns desktop_env's own environment, on the desktop with these sockets."""
    from desktop_env import desktop_env  # pyright: ignore[reportMissingImports]
    from relay import Relay

    provider = _Provider()
    manager = types.SimpleNamespace()
    ports = [Relay(str(SOCKETS / f"{port}")).port for port in PORTS]
    provider.address = f"127.0.0.1:{ports[0]}:{ports[1]}:0:{ports[2]}"
    desktop_env.create_vm_manager_and_provider = lambda *names, **options: (manager, provider)
    return desktop_env.DesktopEnv(
        provider_name="docker",
        path_to_vm="namespaces",
        screen_size=tuple(request["size"]),
        cache_dir=str(_cache(request).parent),
        require_a11y_tree=False,
        client_password=request["password"],
    )


class _Provider:
    """The interface of desktop_env's providers, for a desktop that is already running."""

    address = ""

    def start_emulator(self, *names: Any) -> None:
        """Does nothing: the desktop is running."""

    def get_ip_address(self, path: str) -> str:
        return self.address


def _place_files(request: dict[str, Any], cache: Path) -> None:
    """Puts the files of a task where desktop_env keeps its downloads."""
    import documents

    given = GIVEN / request["example"]["id"]
    if given.is_dir():
        shutil.copytree(given, cache, dirs_exist_ok=True)
    for name, contents in request["files"].items():
        documents.make(cache / name, contents)
        url = f"generated:{name}"
        shutil.copy(cache / name, cache / f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_{name}")


def _cache(request: dict[str, Any]) -> Path:
    """Returns the folder of a task on one desktop; several desktops may be used in turns."""
    return CACHE / request["desktop"] / request["example"]["id"]


def _forget() -> None:
    """Removes the folders of the oldest desktops."""
    folders = sorted(CACHE.glob("*"), key=lambda folder: folder.stat().st_mtime)
    for folder in folders[:-MOST_DESKTOPS]:
        shutil.rmtree(folder, ignore_errors=True)


def _kept(cache: Path) -> Path:
    return cache.with_name(f"{cache.name}.kept")


_CALLS = {"set_up": _set_up, "score": _score}


if __name__ == "__main__":
    main()
