"""Devices that a plan can be made for: their memory and their speed."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass, replace
from functools import cache

import torch

from rlanything.config.roles import RoleConfig
from rlanything.planning.architecture import Architecture, random_layer
from rlanything.planning.quantities import PlanError, amount


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU by its public data sheet: dense matrix products, of the form with most power."""

    float32: float
    """FLOP/s. TensorFloat-32 is not counted: torch leaves it off."""
    bfloat16: float
    """FLOP/s, accumulated in float32."""
    memory: float
    """Bytes."""


GPUS = {
    "a100-40gb": Device(19.5e12, 312e12, 40e9),
    "a100-80gb": Device(19.5e12, 312e12, 80e9),
    "h100": Device(67e12, 989e12, 80e9),
    "h200": Device(67e12, 989e12, 141e9),
    "l4": Device(30.3e12, 121e12, 24e9),
    "l40s": Device(91.6e12, 362e12, 48e9),
    "rtx-4090": Device(82.6e12, 165.2e12, 24e9),
}
CPU = "cpu"
TOKENS, ROUNDS = 256, 9
"""Size and repeats of the measurement on a CPU."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The speed of a role's model, in FLOP/s."""

    passes: float
    """Where many tokens are computed together: prompts and updates."""
    decoding: float
    """Where each answer grows by one token."""
    source: str


def gpu(name: str) -> Device:
    """Returns a GPU of the table. Raises `PlanError` for one that is not in it."""
    if name not in GPUS:
        raise PlanError(
            f"device {name!r} is not known: use {CPU} (this machine) or {', '.join(GPUS)}"
        )
    return GPUS[name]


def memory_of(device: str) -> float:
    """Returns the bytes of one device; those of this machine for `cpu`."""
    if device == CPU:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return gpu(device).memory


def sheet_rate(
    device: str, role: RoleConfig, utilisation: float, decoding_utilisation: float
) -> Rate:
    """Returns a GPU's peak in the role's dtype, times the shares of it that are assumed."""
    peak = gpu(device).bfloat16 if role.dtype == "bfloat16" else gpu(device).float32
    return Rate(
        peak * utilisation,
        peak * decoding_utilisation,
        f"data sheet: {amount(peak, 'FLOP/s')} in {role.dtype}, x utilisation {utilisation:g} "
        f"(decoding {decoding_utilisation:g})",
    )


@cache
def measured_rate(model: Architecture, dtype: str, threads: int) -> Rate:
    """Returns this machine's rate, timed on forward passes of one random layer of that shape."""
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    decoder = random_layer(model)
    ids = torch.zeros(1, TOKENS, dtype=torch.long)
    # The CPU time of one thread does not grow with the load of the machine.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds: list[float] = []
    with torch.inference_mode(), torch.autocast("cpu", enabled=dtype == "bfloat16"):
        for _ in range(1 + ROUNDS):
            begun = clock()
            decoder(input_ids=ids, use_cache=False)
            seconds.append(clock() - begun)
    layer = replace(model, layers=1, layer_matrices=model.layer_matrices // model.layers)
    # The first pass warms up.
    rate = layer.forward_flops(TOKENS, TOKENS, 0) / statistics.median(seconds[1:])
    how = f"measured here: a layer of its shape on {TOKENS} tokens, {torch.get_num_threads()}"
    return Rate(rate, rate, f"{how} thread(s), in {dtype}")
