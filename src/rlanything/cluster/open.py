"""Opens a run's models and environments, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch

from rlanything.cluster.base import Seats
from rlanything.cluster.fleet import SeatModels
from rlanything.cluster.local import LocalSeats
from rlanything.cluster.models import (
    RoleSource,
    load_served,
    load_trained,
    prepare_torch,
)
from rlanything.config.cluster import ClusterConfig
from rlanything.config.engines import OnStage, unseen
from rlanything.config.roles import TrainedRoleConfig
from rlanything.config.sections import EnvironmentConfig
from rlanything.engines.base import Engine, ModelError
from rlanything.engines.hf.text import ModelText
from rlanything.learning.base import Updates
from rlanything.plugins import PluginError, install, load_plugin
from rlanything.rollout.worker_process import Launch


class Served(Protocol):
    """A model that generates, in this process or on seats."""

    @property
    def model(self) -> ModelText: ...
    @property
    def engine(self) -> Engine: ...


class Trained(Served, Protocol):
    """A model that learns, in this process or on seats."""

    @property
    def learner(self) -> Updates: ...
    @property
    def snapshot(self) -> Callable[[Path], Callable[[], None]]:
        """Takes a snapshot, and returns what writes it into an existing folder, in any thread."""
        ...

    @property
    def load_state(self) -> Callable[[Path], None]: ...


class Models(Protocol):
    """Loads and holds the models of roles."""

    @property
    def lost(self) -> bool:
        """Whether their seats, and so the models, are gone."""
        ...

    def trained(self, source: RoleSource) -> Trained: ...
    def served(self, source: RoleSource) -> Served: ...
    def drop(self, role: str) -> None:
        """Frees a model that only generates, after its user has dropped it."""
        ...

    def close(self) -> None: ...


class InProcessModels:
    """Models in this process."""

    lost = False

    def __init__(self, threads: int, on_stage: OnStage = unseen) -> None:
        """`threads`: CPU threads that they share; 0: one per core."""
        prepare_torch(threads)
        self._on_stage = on_stage

    def trained(self, source: RoleSource) -> Trained:
        """Loads a model that learns, here or at its own learner. Raises `ModelError`."""
        return _at_its_learner(source) or load_trained(source, on_stage=self._on_stage)

    def served(self, source: RoleSource) -> Served:
        """Loads a model that only generates, here or at its own learner. Raises `ModelError`."""
        return _at_its_learner(source) or load_served(source, self._on_stage)

    def drop(self, role: str) -> None:
        """Does nothing: a model lives as long as its references."""

    def close(self) -> None:
        """Does nothing, like `drop`."""


def _at_its_learner(source: RoleSource) -> Trained | None:
    """Returns a role's model at the learner elsewhere that its recipe names; None: it names
    none."""
    learner = source.role.learner if isinstance(source.role, TrainedRoleConfig) else None
    return None if learner is None else learner.load(source)


def open_models(
    config: ClusterConfig, devices: Sequence[str], threads: int, on_stage: OnStage = unseen
) -> Models:
    """Returns a loader of models for a recipe's `cluster` section; `devices`: devices of the roles.
    Raises `SeatLost` if the seats do not start, `ModelError` if there is no hardware for them."""
    if config.seats == 1:
        return InProcessModels(threads, on_stage)
    device = next((device for device in devices if device != "cpu"), "cpu")
    seats = _seats(config, device, threads)
    seats.on_stage = on_stage
    return SeatModels(seats, config)


def environment_workers(environment: EnvironmentConfig) -> int | Sequence[Launch]:
    """Returns the number of workers on this machine, or one launcher per worker on Ray. Raises
    `ModelError` without a Ray cluster."""
    if environment.per_machine is None:
        return environment.workers
    return _launcher("ray").launches(environment.per_machine)


def _seats(config: ClusterConfig, device: str, threads: int) -> Seats:
    if config.launcher == "local":
        if device != "cpu" and config.seats > (gpus := torch.cuda.device_count()):
            remedy = f"set cluster.seats={gpus}" if gpus else "choose device: cpu"
            raise ModelError(
                f"cluster.seats: each of {config.seats} seats needs its own GPU, but this machine "
                f"has {gpus}; {remedy}"
            )
        return LocalSeats(config, device, threads)
    return _launcher(config.launcher).seats(config, device, threads)


class Launcher(Protocol):
    """Starts processes on many machines: a plug-in of the group `rlanything.launchers`."""

    def seats(self, config: ClusterConfig, device: str, threads: int) -> Seats: ...
    def launches(self, per_machine: int) -> Sequence[Launch]: ...


def _launcher(name: str) -> Launcher:
    """Returns the launcher of that name. Raises `ModelError` if it is not installed."""
    try:
        return load_plugin("launcher", name)
    except PluginError:
        raise ModelError(
            f"cluster.launcher: {name} is not installed; {install('cluster')}, or choose "
            "launcher: local"
        ) from None
