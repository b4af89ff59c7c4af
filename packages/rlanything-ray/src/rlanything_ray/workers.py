"""Environment workers on the machines of a Ray cluster, the same number on each."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from subprocess import Popen
from typing import Any, cast

# The extra `cluster`; only the environment of `make test-cluster` has it.
import ray  # pyright: ignore[reportMissingImports]
from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]
from ray.util.scheduling_strategies import (  # pyright: ignore[reportMissingImports]
    NodeAffinitySchedulingStrategy,
)

from rlanything.domains.base import DomainError
from rlanything.plugins import child_environment
from rlanything.rollout.worker_process import (
    START_SECONDS,
    Launch,
    ended,
    start_host,
)
from rlanything_ray.seats import connect, first_line


def launches_on_ray(per_machine: int) -> list[Launch]:
    """Returns launchers for this many workers per machine; those of a machine are adjacent.

    If a worker's machine is gone, another one is used. Raises `ModelError` without a Ray
    cluster."""
    connect()
    machines = _Machines()
    return [partial(machines.launch, node) for node in _nodes() for _ in range(per_machine)]


class _Machines:
    """The machines with workers of this process, by Ray node id."""

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}

    def launch(self, wanted: str) -> _RemoteWorker:
        """Starts a worker on a machine, or on another if that one is gone. Raises `DomainError` if
        no machine can."""
        reason = "no machine is left"
        for node in sorted(_nodes(), key=lambda node: node != wanted):
            try:
                return _RemoteWorker(self._actor(node))
            except (RayError, OSError, EOFError) as error:
                self._actors.pop(node, None)
                reason = first_line(error)
        raise DomainError(f"environment.per_machine: no worker can be started on Ray ({reason})")

    def _actor(self, node: str) -> Any:
        if node not in self._actors:
            options: dict[str, Any] = {
                "num_cpus": 0,  # leaves the seats' reservations alone
                "max_restarts": 0,
                "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
                "runtime_env": {"env_vars": child_environment()},
            }
            actor = ray.remote(_Machine).options(**options).remote()
            ray.get(actor.enter.remote(Path.cwd()), timeout=START_SECONDS)
            self._actors[node] = actor
        return self._actors[node]


class _RemoteWorker:
    """A worker process on another machine, and the connection to it."""

    def __init__(self, machine: Any) -> None:
        key = secrets.token_bytes(32)
        address = ray.get(machine.listen.remote(key), timeout=START_SECONDS)
        # Both ends prove to each other that they know the key.
        self.connection = cast(Connection, Client(address, authkey=key))
        _without_delay(self.connection.fileno())
        self.id: int = ray.get(machine.start.remote(), timeout=START_SECONDS)
        self._machine = machine

    def kill(self) -> None:
        self._machine.kill.remote(self.id)

    def wait(self, seconds: float) -> bool:
        try:
            return ray.get(self._machine.wait.remote(self.id, seconds), timeout=seconds + 5)
        except RayError:  # the worker's machine is gone
            return True


class _Machine:
    """The actor that starts workers on its machine; they end with their connections."""

    def __init__(self) -> None:
        self._waiting = ThreadPoolExecutor(1)
        self._caller = Future[Any]()
        self._processes: dict[int, Popen[bytes]] = {}

    def enter(self, folder: Path) -> None:
        """Enters the driver's working directory, to which paths are relative. Raises `OSError`."""
        os.chdir(folder)

    def listen(self, key: bytes) -> tuple[str, int]:
        """Opens a port for the driver's next connection, and returns its address."""
        listener = Listener((ray.util.get_node_ip_address(), 0), authkey=key)
        self._caller = self._waiting.submit(listener.accept)
        self._caller.add_done_callback(lambda _: listener.close())
        return listener.address  # pyright: ignore[reportReturnType], AF_INET gives a pair

    def start(self) -> int:
        """Hands the accepted connection to a new process; returns its id."""
        with self._caller.result(START_SECONDS) as connection:
            _without_delay(connection.fileno())
            process = start_host(connection.fileno())
        self._processes[process.pid] = process
        return process.pid

    def kill(self, number: int) -> None:
        self._processes[number].kill()

    def wait(self, number: int, seconds: float) -> bool:
        """Returns whether a process ended within this time."""
        done = ended(self._processes[number], seconds)
        if done:
            del self._processes[number]
        return done


def _nodes() -> Sequence[str]:
    """Returns the ids of all live Ray nodes."""
    return sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])


def _without_delay(descriptor: int) -> None:
    """Sends a connection's small messages without delay."""
    with socket.socket(fileno=os.dup(descriptor)) as same:
        same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
