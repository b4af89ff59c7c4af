"""Seats as actors of a Ray cluster, on one machine or many."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import signal
import socket
import struct
import threading
import time
import weakref
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

# The extra `cluster`; only the environment of `make test-cluster` has it.
import ray  # pyright: ignore[reportMissingImports]
from ray.exceptions import RayError, RayTaskError  # pyright: ignore[reportMissingImports]
from ray.util import (  # pyright: ignore[reportMissingImports]
    placement_group,
    remove_placement_group,
)
from ray.util.scheduling_strategies import (  # pyright: ignore[reportMissingImports]
    PlacementGroupSchedulingStrategy,
)
from torch.distributed import (
    DistNetworkError,
    TCPStore,  # pyright: ignore[reportPrivateImportUsage], it is in the documentation
)

from rlanything.cluster.base import Call, Place, SeatLost
from rlanything.cluster.pool import SeatPool
from rlanything.cluster.seat import Done, Failed, SamplesDone, Seat, StageBegun, answer
from rlanything.config.cluster import ClusterConfig
from rlanything.engines.base import ModelError
from rlanything.plugins import child_environment

SHARED = "model files and the run directory must be on a file system that all machines see"
_ADDRESS_OF_INTERFACE = 0x8915
"""SIOCGIFADDR of Linux, see netdevice(7)."""


class RaySeats(SeatPool):
    """Actors of a Ray cluster, each with its own GPU or CPUs. A dead actor is not restarted: its
    state, and with it the other seats' work, is lost."""

    # Other seats notice a dead machine before Ray's health checks do.
    grace_seconds = 30.0

    def __init__(self, config: ClusterConfig, device: str, threads: int) -> None:
        """`device`: `cpu`, or `cuda` for one GPU per seat; `threads`: total CPU threads, 0 for one
        per seat. Raises `ModelError` without a Ray cluster, or if its machines lack something that
        is needed, and `SeatLost` if the seats do not start."""
        connect()
        place = Place(
            rank=0,
            size=config.seats,
            meeting="",
            device=device,
            threads=max(1, threads // config.seats),
            timeout_seconds=max(config.load_seconds, config.timeout_seconds),
        )
        self._answers: dict[int, Any] = {}
        self._actors: list[Any] = []
        self._machines: dict[int, str] = {}
        with _losses():
            group = _reserve(config, device, place.threads)
        # Frees them if the driver drops the seats; when the driver exits, Ray frees them itself.
        self._ended = weakref.finalize(self, _end_later, self._actors, group)
        self._ended.atexit = False
        try:
            with _losses():
                self._start(group, config, place)
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        return len(self._actors)

    def close(self) -> None:
        self.usable = False
        if held := self._ended.detach():
            _, _, arguments, _ = held
            _end(*arguments)

    def _start(self, group: Any, config: ClusterConfig, place: Place) -> None:
        """Starts the actors on the reserved machines and forms the process group."""
        seconds = config.start_seconds
        if not _placed(group, seconds):
            raise SeatLost(
                f"cluster: in {seconds:g} s Ray found no room for {_needs(group)}; the cluster has "
                f"{_amounts(ray.cluster_resources())} in all"
            )
        for rank in range(place.size):
            bundle = rank // config.per_machine if config.per_machine else rank
            self._actors.append(_hire(group, bundle, place))
        everyone = range(place.size)
        arrive = Call(_Host.arrive, (Path.cwd(),))
        self._machines = self.ask(dict.fromkeys(everyone, arrive), seconds)
        [meeting] = self.ask({0: Call(_Host.open_meeting, (config.ports,))}, seconds).values()
        places = [dataclasses.replace(place, rank=rank, meeting=meeting) for rank in everyone]
        self.ask({p.rank: Call(_Host.begin, (p,)) for p in places}, seconds)

    def _translating_losses(self) -> AbstractContextManager[None]:
        return _losses()

    @property
    def alive(self) -> bool:
        return self._ended.alive

    def _post(self, messages: Mapping[int, Any], seconds: float) -> None:
        self._answers = {n: self._actors[n].do.remote(call) for n, call in messages.items()}

    def _wait(self, waiting: Collection[int], seconds: float) -> list[int]:
        answers = [self._answers[number] for number in waiting]
        deadline = time.monotonic() + seconds
        ready: list[Any] = []
        while not ready and (left := deadline - time.monotonic()) > 0:
            # Ray ignores signals while it waits.
            ready, _ = ray.wait(answers, timeout=min(left, 1.0))
        return [number for number in waiting if self._answers[number] in ready]

    def _receive(self, number: int, seconds: float) -> SamplesDone | StageBegun | Done | Failed:
        try:
            message = ray.get(next(self._answers[number]), timeout=seconds)
        except RayError as error:
            self._lose(f"seat {number}{self._machine(number)} died ({first_line(error)})")
        if isinstance(message, Failed) and isinstance(message.error, ModelError | OSError):
            message.error.add_note(f"on seat {number}{self._machine(number)}; {SHARED}")
        return message

    def _machine(self, number: int) -> str:
        return f" on {self._machines[number]}" if self._machines else ""


class _Host:
    """The actor around a seat. Its worker thread runs the calls, while the actor forwards their
    messages."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[SamplesDone | StageBegun | Done | Failed] = SimpleQueue()
        self._worker = ThreadPoolExecutor(1)
        self._seat: Seat | None = None

    def do(self, call: Call) -> Iterator[SamplesDone | StageBegun | Done | Failed]:
        """Runs a call on the seat, or on this host before there is a seat."""
        target: Any = self._seat or self
        self._worker.submit(lambda: self._messages.put(answer(target, call)))
        while True:
            message = self._messages.get()
            yield message
            if isinstance(message, Done | Failed):
                return

    def arrive(self, folder: Path) -> str:
        """Enters the driver's working directory, to which paths are relative, and returns this
        machine's address. Raises `ModelError` if the directory is missing here."""
        address: str = ray.util.get_node_ip_address()
        try:
            os.chdir(folder)
        except OSError as error:
            raise ModelError(
                f"{folder} is not there on {address} ({error.strerror}): {SHARED}, and this is the "
                "folder in which the run was started"
            ) from None
        return address

    def open_meeting(self, ports: tuple[int, int] | None) -> str:
        """Opens the rendezvous port on this machine and returns its URL; the port stays open, so
        that nothing else can take it. Raises `ModelError` if all of `ports` are taken."""
        address: str = ray.util.get_node_ip_address()
        low, high = ports or (0, 0)
        for port in range(low, high + 1):
            with suppress(DistNetworkError):
                self._store = TCPStore(
                    address, port, is_master=True, wait_for_workers=False, multi_tenant=True
                )
                return f"tcp://{address}:{self._store.port}"
        raise ModelError(
            f"cluster.ports: on {address} all ports from {low} to {high} are taken; give others"
        )

    def begin(self, place: Place) -> None:
        """Becomes a seat."""
        # By default gloo resolves the machine's name, which may be the loopback interface.
        if interface := interface_of(ray.util.get_node_ip_address()):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        self._seat = Seat(place, self._messages.put)


def interface_of(address: str) -> str | None:
    """Returns the network interface of this machine with this IPv4 address; None: none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                asked = struct.pack("256s", name.encode())
                answered = fcntl.ioctl(asking.fileno(), _ADDRESS_OF_INTERFACE, asked)
                if socket.inet_ntoa(answered[20:24]) == address:
                    return name
    return None


def connect() -> None:
    """Joins the Ray cluster of this machine, or of RAY_ADDRESS. Raises `ModelError`."""
    if ray.is_initialized():
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address="auto", log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ModelError(
            "cluster.launcher: no Ray cluster to join; `ray start --head` on this machine, then "
            f"`ray start --address=...` on the others, or set RAY_ADDRESS ({first_line(error)})"
        ) from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)  # Ray replaced the run's handler


def _reserve(config: ClusterConfig, device: str, threads: int) -> Any:
    """Reserves the seats' resources: a fixed number per machine, or on as few as possible."""
    one = {"CPU": threads} | ({} if device == "cpu" else {"GPU": 1})
    if not config.per_machine:
        return placement_group([one] * config.seats, strategy="PACK")
    whole, rest = divmod(config.seats, config.per_machine)
    counts = [config.per_machine] * whole + ([rest] if rest else [])
    bundles = [{name: amount * count for name, amount in one.items()} for count in counts]
    return placement_group(bundles, strategy="STRICT_SPREAD")


def _placed(group: Any, seconds: float) -> bool:
    """Whether the reservation succeeds within this time."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        # Ray ignores signals while it waits, and blocks the other threads of this process.
        if group.wait(min(left, 1.0)):
            return True
        time.sleep(0.1)
    return False


def _hire(group: Any, bundle: int, place: Place) -> Any:
    """Starts an actor on its reserved resources."""
    variables = {**child_environment(), "OMP_NUM_THREADS": str(place.threads)}
    options: dict[str, Any] = {
        "num_cpus": place.threads,
        "num_gpus": 0 if place.device == "cpu" else 1,
        "max_restarts": 0,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group, bundle),
        "runtime_env": {"env_vars": variables},
    }
    return ray.remote(_Host).options(**options).remote()


def _end_later(actors: list[Any], group: Any) -> None:
    """Ends actors from a garbage collection, in a thread of its own: it may happen inside a call of
    Ray's, which must not be entered again."""
    threading.Thread(target=_end, args=(actors, group), daemon=True).start()


def _end(actors: list[Any], group: Any) -> None:
    if not ray.is_initialized():  # Ray has ended, and its actors with it
        return
    with suppress(RayError):  # the cluster is gone
        for actor in actors:
            ray.kill(actor)
        remove_placement_group(group)


@contextmanager
def _losses() -> Iterator[None]:
    """Raises Ray's errors as `SeatLost`."""
    try:
        yield
    except RayError as error:
        raise SeatLost(f"cluster: {first_line(error)}") from None


def _needs(group: Any) -> str:
    return " + ".join(map(_amounts, group.bundle_specs))


def _amounts(resources: Mapping[str, float]) -> str:
    named = (f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name))
    return " and ".join(named) or "nothing"


def first_line(error: Exception) -> str:
    """Returns a Ray error in one line: its first one, or the last of a traceback."""
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, RayTaskError):
        return lines[-1]
    return f"{type(error).__name__}: {lines[0]}"
