"""The `cluster` section of a recipe: the number of seats for its models, and their machines."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rlanything.config.engines import ConfigSection
from rlanything.config.roles import Count

Port = Annotated[int, Field(ge=1, le=65535)]
Ports = Annotated[tuple[Port, Port], Field(strict=False)]


class ClusterConfig(ConfigSection):
    """A seat is a process with its own share of the hardware: a core, or a GPU. Each holds a shard
    of every model that learns and a full copy of every model that generates."""

    seats: Count = 1
    """Number of processes that share the models' work; 1: only this process. The same seed and
    number of seats give the same bits; other numbers give the same up to rounding."""
    launcher: Literal["local", "ray"] = "local"
    """`local` starts the seats on this machine; `ray` places them on the machines of a Ray cluster
    (needs `pip install 'rlanything[cluster]'`)."""
    per_machine: Count | None = None
    """With `ray`, number of seats per machine. None: as many as fit."""
    ports: Ports | None = None
    """With `ray`, first and last port to try for the rendezvous. None: any free port."""
    offload: bool = False
    """Whether a learner's optimizer and weights move to host memory while engines generate."""
    start_seconds: Annotated[float, Field(gt=0)] = 300.0
    """Time limit for starting the seats."""
    load_seconds: Annotated[float, Field(gt=0)] = 1800.0
    """Time limit for each stage of loading a model (download included), and for saving one."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Longest silence of a seat during an update. After that all seats are replaced and the
    iteration is repeated."""

    @model_validator(mode="after")
    def _of_several_seats_or_ray(self) -> ClusterConfig:
        for name in ("per_machine", "ports"):
            if getattr(self, name) is not None and self.launcher == "local":
                raise ValueError(f"{name} belongs to launcher: ray; leave it out")
        for name in ("offload", "per_machine", "ports"):
            if getattr(self, name) and self.seats == 1:
                raise ValueError(f"{name} belongs to several seats; leave it out, or raise seats")
        if self.ports is not None and self.ports[0] > self.ports[1]:
            raise ValueError("ports: the first is above the last; swap them")
        return self
