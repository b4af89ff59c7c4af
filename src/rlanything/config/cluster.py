"""The section of a recipe that says on how many seats its models run, and where these are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rlanything.config.engines import ConfigSection
from rlanything.config.roles import Count

Port = Annotated[int, Field(ge=1, le=65535)]
Ports = Annotated[tuple[Port, Port], Field(strict=False)]


class ClusterConfig(ConfigSection):
    """A seat is a process with its own share of the hardware: a core, or a GPU. Each holds a shard
    of every model that learns and a whole copy of every model that generates."""

    seats: Count = 1
    """How many processes share the models' work; 1: this process alone does it. The same seed and
    seats give the same bits, another number of seats the same up to rounding."""
    launcher: Literal["local", "ray"] = "local"
    """`local` starts them on this machine; `ray` places them over the machines of a Ray cluster
    (needs `pip install 'rlanything[cluster]'`)."""
    per_machine: Count | None = None
    """With `ray`, how many seats a machine has. None: as many as fit."""
    ports: Ports | None = None
    """With `ray`, the ports one of which seats meet at, first and last. None: any that is free."""
    offload: bool = False
    """Whether a learner's optimizer and weights wait in the host's memory while engines
    generate."""
    start_seconds: Annotated[float, Field(gt=0)] = 300.0
    """What starting the seats and loading their models may take."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 600.0
    """A seat that is silent for so long in an update is replaced with all others, and the iteration
    is repeated."""

    @model_validator(mode="after")
    def _seats_to_offload(self) -> ClusterConfig:
        if self.offload and self.seats == 1:
            raise ValueError("offload: only learners on several seats rest; leave it out")
        return self

    @model_validator(mode="after")
    def _machines_of_ray(self) -> ClusterConfig:
        for name in ("per_machine", "ports"):
            if getattr(self, name) is not None and self.launcher == "local":
                raise ValueError(f"{name} belongs to launcher: ray; leave it out")
        if self.ports is not None and self.ports[0] > self.ports[1]:
            raise ValueError("ports: the first is above the last")
        return self
