"""Where a run's models and environments are: on this machine, or on those of a cluster."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch

from rlanything.cluster.base import Seats
from rlanything.cluster.fleet import OnSeats
from rlanything.cluster.local import LocalSeats
from rlanything.cluster.models import (
    RoleSource,
    ServedModel,
    TrainedModel,
    load_served,
    load_trained,
    prepare_torch,
)
from rlanything.config.cluster import ClusterConfig
from rlanything.config.sections import EnvironmentConfig
from rlanything.engines.base import Engine, ModelError
from rlanything.engines.hf.text import ModelText
from rlanything.learning.base import Updates
from rlanything.rollout.worker_process import Launch


class Served(Protocol):
    """A model that generates, wherever it is."""

    @property
    def model(self) -> ModelText: ...
    @property
    def engine(self) -> Engine: ...


class Trained(Served, Protocol):
    """A model that learns, wherever it is."""

    @property
    def learner(self) -> Updates: ...
    @property
    def save(self) -> Callable[[Path], None]: ...
    @property
    def load_state(self) -> Callable[[Path], None]: ...


class Models(Protocol):
    """A holder of the models of roles, which loads them."""

    @property
    def lost(self) -> bool:
        """Whether they are gone, with the seats that they were on."""
        ...

    def trained(self, source: RoleSource) -> Trained: ...
    def served(self, source: RoleSource) -> Served: ...
    def close(self) -> None: ...


class Here:
    """Models of this process."""

    lost = False

    def __init__(self, threads: int) -> None:
        """`threads`: CPU threads of all of them; 0: as many as there are cores."""
        prepare_torch(threads)

    def trained(self, source: RoleSource) -> TrainedModel:
        """Loads a model that learns. Raises `ModelError`."""
        return load_trained(source)

    def served(self, source: RoleSource) -> ServedModel:
        """Loads a model that never learns. Raises `ModelError`."""
        return load_served(source)

    def close(self) -> None:
        """Does nothing: they go with whoever holds them."""


def open_models(config: ClusterConfig, devices: Sequence[str], threads: int) -> Models:
    """Returns what loads models where a recipe's `cluster` section says; `devices`: those of the
    roles. Raises `SeatLost` where seats do not come up, `ModelError` where there are none."""
    if config.seats == 1:
        return Here(threads)
    device = next((device for device in devices if device != "cpu"), "cpu")
    return OnSeats(_seats(config, device, threads), config)


def environment_workers(environment: EnvironmentConfig) -> int | Sequence[Launch]:
    """Returns how many workers play on this machine, or what launches them on those of Ray. Raises
    `ModelError` where there is no cluster."""
    if environment.per_machine is None:
        return environment.workers
    _need_ray()
    from rlanything.cluster.workers_on_ray import launches_on_ray

    return launches_on_ray(environment.per_machine)


def _seats(config: ClusterConfig, device: str, threads: int) -> Seats:
    if config.launcher == "local":
        if device != "cpu" and config.seats > (gpus := torch.cuda.device_count()):
            remedy = f"set cluster.seats={gpus}" if gpus else "choose device: cpu"
            raise ModelError(
                f"cluster.seats: each of {config.seats} seats needs a GPU of its own, and this "
                f"machine has {gpus}; {remedy}"
            )
        return LocalSeats(config, device, threads)
    _need_ray()
    from rlanything.cluster.on_ray import RaySeats

    return RaySeats(config, device, threads)


def _need_ray() -> None:
    if importlib.util.find_spec("ray") is None:
        raise ModelError(
            "cluster.launcher: Ray is not installed; pip install 'rlanything[cluster]', or choose "
            "launcher: local"
        )
