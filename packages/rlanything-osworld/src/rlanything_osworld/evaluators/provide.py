"""Starts, reverts and stops one machine through a provider of desktop_env or of the user.

    python provide.py '{"provider": "docker", ...}'

Each line of the input requests the machine in its initial state, and each line of the output says
where it is. At the end of the input the machine is stopped. This program has the network, files and
rights of its user, because docker and clouds need them. It reads no data from inside the machine.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import signal
import sys
import time
import types
from typing import Any

import stubs

SERVER_SECONDS = 300.0
"""Time limit in seconds for the server in a machine to answer, once the provider reports that the
machine runs."""
NEEDED = ("start_emulator", "get_ip_address", "revert_to_snapshot", "stop_emulator")


def main() -> None:
    options = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # providers print
    silence = os.open(os.devnull, os.O_WRONLY)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that the machine is stopped
    environment = None
    try:
        for _ in sys.stdin:
            try:
                environment = _fresh(environment, options)
                answer = _place(environment)
            except Exception as fault:  # providers may raise anything
                said = " ".join(str(fault).split())
                answer = {"error": f"{type(fault).__name__}: {said}"[:500]}
            answers.write(f"{json.dumps(answer)}\n")
            answers.flush()
            os.dup2(silence, 1)
            os.dup2(silence, 2)
    finally:
        if environment is not None:
            environment.close()


def _fresh(environment: Any, options: dict[str, Any]) -> Any:
    """Returns desktop_env's environment, on a fresh machine."""
    if environment is None:
        environment = _environment(options)
    else:
        environment.is_environment_used = True
    # desktop_env's own rule: a machine that starts clean is reverted only after use.
    environment.reset()
    deadline = time.monotonic() + SERVER_SECONDS
    while environment.controller.get_screenshot() is None:
        if time.monotonic() > deadline:
            raise TimeoutError("the machine's server gives no screenshot")
    return environment


def _environment(options: dict[str, Any]) -> Any:
    provider, path = options["provider"], options["path_to_vm"]
    own = _own(provider, options["region"]) if ":" in provider else None
    if provider in ("vmware", "virtualbox") and path is not None:
        _claim(path)
    stubs.install()
    from desktop_env import desktop_env  # pyright: ignore[reportMissingImports]

    if own is not None:
        nothing = types.SimpleNamespace()
        for name in ("delete_vm", "add_vm", "occupy_vm"):
            setattr(nothing, name, lambda *_: None)
        desktop_env.create_vm_manager_and_provider = lambda *_, **__: (nothing, own)
        # desktop_env must treat it as a provider whose machines start clean.
        provider, path = "docker", path or "own"
    return desktop_env.DesktopEnv(
        provider_name=provider,
        region=options["region"],
        path_to_vm=path,
        snapshot_name=options["snapshot_name"],
        screen_size=tuple(options["screen_size"]),
        headless=options["headless"],
        client_password=options["client_password"],
        require_a11y_tree=False,
    )


def _own(name: str, region: str | None) -> Any:
    """Returns the provider that `module:Class` creates for a region."""
    module, _, attribute = name.partition(":")
    own = getattr(importlib.import_module(module), attribute)(region)
    lacking = [each for each in NEEDED if not hasattr(own, each)]
    if lacking:
        raise TypeError(f"{name} is no provider of machines: it lacks {', '.join(lacking)}")
    return own


def _claim(path: str) -> None:
    """Locks a machine's file for this process until it ends: two episodes in one machine would
    score each other's work."""
    file = os.open(os.path.expanduser(path), os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise RuntimeError(
            f"{path} is in use by another environment: leave path_to_vm out, so that each gets a "
            "machine of its own, or play one episode at a time"
        ) from None


def _place(environment: Any) -> dict[str, Any]:
    ports = [getattr(environment, f"{name}_port") for name in ("server", "chromium", "vlc")]
    return {"host": environment.vm_ip, "ports": ports, "password": environment.client_password}


if __name__ == "__main__":
    main()
