"""The launcher that `cluster.launcher: ray` names."""

from __future__ import annotations

from collections.abc import Sequence

from rlanything.config.cluster import ClusterConfig
from rlanything.rollout.worker_process import Launch
from rlanything_ray.seats import RaySeats
from rlanything_ray.workers import launches_on_ray


def seats(config: ClusterConfig, device: str, threads: int) -> RaySeats:
    """Returns the seats of a recipe's `cluster` section."""
    return RaySeats(config, device, threads)


def launches(per_machine: int) -> Sequence[Launch]:
    """Returns launchers for this many environment workers on every machine."""
    return launches_on_ray(per_machine)
