"""Which role lies on which device, and whether it fits there."""

from __future__ import annotations

from collections.abc import Mapping

from rlanything.planning.devices import memory_of
from rlanything.planning.memory import RoleMemory
from rlanything.planning.quantities import PlanSection, Quantity, amount


def place(memories: Mapping[str, RoleMemory], device: str, count: int) -> tuple[bool, PlanSection]:
    """Returns whether the roles fit on so many devices, and what lies on each.

    The largest role comes first, and each lies whole on the device that is emptiest."""
    size = memory_of(device)
    loads: list[tuple[float, list[str]]] = [(0.0, []) for _ in range(count)]
    for name in sorted(memories, key=lambda role: -memories[role].total):
        emptiest = min(range(count), key=lambda i: loads[i][0])
        load, names = loads[emptiest]
        loads[emptiest] = (load + memories[name].total, [*names, name])
    used = sum(bool(names) for _, names in loads)
    quantities = [
        Quantity(f"{device} {i}", load, "bytes", f"{' + '.join(names)}, {_verdict(load, size)}")
        for i, (load, names) in enumerate(loads[:used])
    ]
    if used < count:
        how = "devices: each role lies whole on one of them"
        quantities.append(Quantity("unused", count - used, "", how))
    for name, memory in memories.items():
        if memory.total > size:
            how = f"a role cannot be split over devices; {memory.remedy()}"
            quantities.append(Quantity(f"{name}: remedy", None, "", how))
    fits = all(load <= size for load, _ in loads)
    return fits, PlanSection("Memory: devices", tuple(quantities))


def _verdict(load: float, size: float) -> str:
    of = f"of {amount(size, 'bytes')}"
    if load <= size:
        return f"{of}: fits, {amount(size - load, 'bytes')} left"
    return f"{of}: DOES NOT FIT, {amount(load - size, 'bytes')} too much"
