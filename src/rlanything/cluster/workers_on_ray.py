"""Environment workers on the machines of a Ray cluster, so many on each."""

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

# The extra `cluster`: it is in the environment of `make test-cluster` only.
import ray  # pyright: ignore[reportMissingImports]
from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]
from ray.util.scheduling_strategies import (  # pyright: ignore[reportMissingImports]
    NodeAffinitySchedulingStrategy,
)

from rlanything.cluster.on_ray import connect, first_line
from rlanything.domains.base import DomainError
from rlanything.plugins import child_environment
from rlanything.rollout.worker_process import (
    START_SECONDS,
    Launch,
    ended,
    start_host,
)


def launches_on_ray(per_machine: int) -> list[Launch]:
    """Returns what launches so many workers on every machine; those of a machine are neighbours.

    A worker whose machine is gone is launched on another. Raises `ModelError` where there is no
    Ray cluster to join."""
    connect()
    machines = _Machines()
    return [partial(machines.launch, node) for node in _nodes() for _ in range(per_machine)]


class _Machines:
    """The machines on which this process has workers, by Ray's names for them."""

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}

    def launch(self, wanted: str) -> _RemoteWorker:
        """Starts a worker on a machine, on another where that one is gone. Raises `DomainError`
        where none can."""
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
                "num_cpus": 0,  # what seats have reserved is left to them
                "max_restarts": 0,
                "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
                "runtime_env": {"env_vars": child_environment()},
            }
            actor = ray.remote(_Machine).options(**options).remote()
            ray.get(actor.enter.remote(Path.cwd()), timeout=START_SECONDS)
            self._actors[node] = actor
        return self._actors[node]


class _RemoteWorker:
    """A worker process of another machine, and the connection to it."""

    def __init__(self, machine: Any) -> None:
        key = secrets.token_bytes(32)
        address = ray.get(machine.listen.remote(key), timeout=START_SECONDS)
        # Whoever listens and whoever calls prove to each other that they know the key.
        self.connection = cast(Connection, Client(address, authkey=key))
        _without_delay(self.connection.fileno())
        self.id: int = ray.get(machine.start.remote(), timeout=START_SECONDS)
        self._machine = machine

    def kill(self) -> None:
        self._machine.kill.remote(self.id)

    def wait(self, seconds: float) -> bool:
        try:
            return ray.get(self._machine.wait.remote(self.id, seconds), timeout=seconds + 5)
        except RayError:  # the machine is gone, and with it the worker
            return True


class _Machine:
    """The actor that starts workers on its machine; they end with their connections."""

    def __init__(self) -> None:
        self._waiting = ThreadPoolExecutor(1)
        self._caller = Future[Any]()
        self._processes: dict[int, Popen[bytes]] = {}

    def enter(self, folder: Path) -> None:
        """Enters the driver's folder, which paths begin from. Raises `OSError`."""
        os.chdir(folder)

    def listen(self, key: bytes) -> tuple[str, int]:
        """Opens a port for the driver's next call, and returns where."""
        listener = Listener((ray.util.get_node_ip_address(), 0), authkey=key)
        self._caller = self._waiting.submit(listener.accept)
        self._caller.add_done_callback(lambda _: listener.close())
        return listener.address  # pyright: ignore[reportReturnType], of this family it is a pair

    def start(self) -> int:
        """Hands the call that came to a new process; returns its id."""
        with self._caller.result(START_SECONDS) as connection:
            _without_delay(connection.fileno())
            process = start_host(connection.fileno())
        self._processes[process.pid] = process
        return process.pid

    def kill(self, number: int) -> None:
        self._processes[number].kill()

    def wait(self, number: int, seconds: float) -> bool:
        """Returns whether a process has ended by then."""
        done = ended(self._processes[number], seconds)
        if done:
            del self._processes[number]
        return done


def _nodes() -> Sequence[str]:
    """Returns Ray's names of the machines that are there."""
    return sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])


def _without_delay(descriptor: int) -> None:
    """Has small messages of a connection sent at once."""
    with socket.socket(fileno=os.dup(descriptor)) as same:
        same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
