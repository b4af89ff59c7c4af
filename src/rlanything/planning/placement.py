"""Which role lies on which device, and whether it fits there."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rlanything.planning.devices import CPU, gpu
from rlanything.planning.figures import Figure, Section, amount

REMEDIES = {
    "weights": "a smaller model",
    "gradients": "lora, or a smaller model",
    "optimizer": "lora, or a smaller model",
    "anchor": "lora, or no reference_kl_weight",
    "activations": "less of max_pack_tokens, or of max_tokens and max_steps: a pack holds at least "
    "one whole sample",
    "logits": "less of max_pack_tokens or max_tokens",
    "KV cache": "less of max_tokens and max_steps: many conversations are kept, "
    "whole; or engine: {name: vllm}",
    "vLLM's weights": "a smaller model, or bfloat16",
    "vLLM's cache": "less of engine.memory_gib",
    "generating": "less of max_tokens and max_steps",
}
"""What makes each part of a role's memory smaller."""


def place(memories: Mapping[str, Section], device: str, count: int) -> tuple[bool, Section]:
    """Whether the roles, whose memory this is, fit on so many devices: the largest first, each on
    the device that is emptiest."""
    size = memory_of(device)
    totals = {name: memory.value("total") for name, memory in memories.items()}
    loads: list[tuple[float, list[str]]] = [(0.0, []) for _ in range(count)]
    for name in sorted(totals, key=lambda each: -totals[each]):
        emptiest = min(range(count), key=lambda i: loads[i][0])
        load, names = loads[emptiest]
        loads[emptiest] = (load + totals[name], [*names, name])
    used = sum(bool(names) for _, names in loads)
    figures = [
        Figure(f"{device} {i}", load, "bytes", f"{' + '.join(names)}, {_verdict(load, size)}")
        for i, (load, names) in enumerate(loads[:used])
    ]
    if used < count:
        figures.append(
            Figure("unused", count - used, "", "devices: each role lies whole on one of them")
        )
    for name, memory in memories.items():
        if totals[name] > size:
            *parts, _ = memory.figures
            largest = max(parts, key=lambda part: part.value or 0.0)
            most = f"most is {largest.name}: {REMEDIES[largest.name]}"
            how = f"a role is not divided over devices; {most}"
            figures.append(Figure(f"{name}: remedy", None, "", how))
    return all(load <= size for load, _ in loads), Section("Memory: devices", tuple(figures))


def memory_of(device: str) -> float:
    """Bytes of one device; of this machine for `cpu`."""
    if device == CPU:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return gpu(device).memory


def _verdict(load: float, size: float) -> str:
    of = f"of {amount(size, 'bytes')}"
    if load <= size:
        return f"{of}: fits, {amount(size - load, 'bytes')} left"
    return f"{of}: DOES NOT FIT, {amount(load - size, 'bytes')} too much"
