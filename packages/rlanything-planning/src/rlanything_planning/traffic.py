"""Bytes that seats exchange in an iteration, and their seconds at the assumed bandwidths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from rlanything.config.recipe import Recipe
from rlanything.config.roles import TrainedRoleConfig
from rlanything_planning.architecture import Architecture
from rlanything_planning.assumptions import Assumptions
from rlanything_planning.memory import FLOAT32, SIZES
from rlanything_planning.report import PlanSection, Quantity, amount
from rlanything_planning.workload import RoleWorkload

GPUS_A_MACHINE = 8


def traffic(
    recipe: Recipe,
    roles: Sequence[RoleWorkload],
    models: Mapping[str, Architecture],
    assumed: Assumptions,
    seats: int,
) -> PlanSection:
    """Returns the bytes that each seat receives from the others for the roles that learn, and their
    seconds without overlap: gathers hidden behind computation cost nothing.

    Collectives run in rings, one per network port, so bytes enter a machine once over all its
    ports, and each GPU once."""
    machine = min(seats, recipe.cluster.per_machine or GPUS_A_MACHINE)
    machines = ceil(seats / machine)
    inside = (seats - 1) / seats / assumed.machine_bandwidth
    between = (machines - 1) / machines / (machine * assumed.network_bandwidth)
    slowest = "between" if between > inside else "inside"
    lines: list[Quantity] = []
    for work in roles:
        if work.learned and isinstance(work.role, TrainedRoleConfig) and work.name in models:
            for name, whole, how in exchanged(work, work.role, models[work.name], seats):
                name = f"{work.name}: {name}"
                lines.append(Quantity(name, whole * (seats - 1) / seats, "bytes", how))
                how = f"{amount(whole, 'bytes')} to each of {machines} machine(s) of {machine}: "
                how += f"as long as it takes {slowest} them"
                lines.append(Quantity(f"{name}", whole * max(inside, between), "s", how))
    return PlanSection("Traffic of one iteration, received by each seat", tuple(lines))


def exchanged(
    work: RoleWorkload, role: TrainedRoleConfig, model: Architecture, seats: int
) -> Iterator[tuple[str, float, str]]:
    """Yields name, bytes (including a seat's own part) and calculation.

    A backward pass gathers weights again that were resharded after the forward pass."""
    assert work.learned is not None
    turns, size = work.learned.turns(seats), SIZES[role.dtype]
    whole, trained = model.parameters + model.adapters, model.adapters or model.parameters
    times = 2 + (role.old_logprobs == "recomputed") + (role.reference_kl_weight > 0)
    how = f"{turns} passes x {times} x {whole:,} x {size} B"
    yield "all-gather", turns * times * whole * size, how
    how = f"{turns} passes x {trained:,} x {FLOAT32} B"
    yield "reduce-scatter", turns * trained * FLOAT32, how
    yield "hand-over", whole * size, f"{whole:,} parameters x {size} B, to this seat's engine"
