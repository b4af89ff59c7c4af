"""The memory that a role needs, in bytes, with AdamW; and which role lies on which device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rlanything.config.engines import EngineWorkload, MemoryPart
from rlanything.config.roles import RoleConfig, TrainedRoleConfig
from rlanything.engines.hf.attention import TILE
from rlanything.planning.architecture import Architecture
from rlanything.planning.report import PlanSection, Quantity, amount
from rlanything.planning.workload import RoleWorkload

SIZES = {"float32": (FLOAT32 := 4), "bfloat16": 2}
"""Bytes of a number, by the type that a role computes in."""
LOGIT_COPIES = 3.25
"""The peak is where the learner turns back: log-probs, and their gradients before and after they
are normalised; and a mask of what is not allowed."""


class RoleMemory(NamedTuple):
    """The memory of one role, and a remedy: its largest part, and what makes that smaller."""

    section: PlanSection
    total: float
    remedy: str


def cache_bytes_per_token(model: Architecture, role: RoleConfig) -> int:
    """Returns the bytes of keys and values: with autocast keys leave RoPE in float32, values a
    matrix product in bfloat16."""
    return model.layers * model.key_width * (FLOAT32 + SIZES[role.dtype])


def activations(
    model: Architecture, role: TrainedRoleConfig, tokens: int, keys: float, tiles: bool
) -> MemoryPart:
    """Returns what is kept for the backward pass of tokens that see `keys` each, without logits.

    In a layer two norms keep their input, what it is normalised to, and (as the input of a linear
    layer) their output; attention its queries, its output twice, and its keys and values; the MLP
    four tensors between its matrices. On CPUs a tile gathers the keys it looks at and keeps its
    mask as numbers. With gradient checkpointing: what enters each layer, and all of one layer."""
    size = SIZES[role.dtype]
    norms = 2 * model.hidden * (2 * FLOAT32 + size)
    norms += (model.query_width + model.key_width) * 2 * FLOAT32 if model.head_norms else 0
    seen = 2.0 * model.key_width
    if tiles:
        seen = 2 * model.key_width * keys / TILE + model.heads / model.key_value_heads * keys
    layer = norms + (3 * model.query_width + seen + 4 * model.intermediate) * size
    per_token, at_once, layers = model.layers * layer, 1.0, f"{model.layers} layers x {layer:,.0f}"
    if role.gradient_checkpointing:
        per_token, at_once = model.layers * model.hidden * FLOAT32 + layer, 1 / model.layers
        layers = f"({model.layers} layers x {model.hidden} x {FLOAT32} + {layer:,.0f})"
    total, how = tokens * per_token, f"{tokens:,} tokens in the largest pass x {layers} B"
    if role.dtype == "bfloat16":
        total += size * model.layer_matrices * at_once
        how += " + matrices in bfloat16"
    remedy = "a lower max_pack_tokens, max_tokens or max_steps: a pack holds a whole sample"
    return MemoryPart("activations", total, how, remedy)


def logits(model: Architecture, rows: float) -> MemoryPart:
    """Returns what an update holds at its peak for so many rows of logits."""
    total = rows * model.vocabulary * FLOAT32 * LOGIT_COPIES
    how = f"{rows:,.0f} response tokens in a pass x {model.vocabulary:,} x {FLOAT32} B x "
    how += f"{LOGIT_COPIES} (log-probs, two gradients of them, and a mask)"
    return MemoryPart("logits", total, how, "a lower max_pack_tokens or max_tokens")


def held(model: Architecture, role: RoleConfig, learns: bool) -> list[MemoryPart]:
    """Returns what a role's model and its learner hold all the time."""
    every, trained = model.parameters + model.adapters, model.adapters or model.parameters
    # A model that never trains keeps its weights in what it computes in.
    kept = "float32" if isinstance(role, TrainedRoleConfig) else role.dtype
    size, computed, smaller = SIZES[kept], SIZES[role.dtype], "a smaller model"
    how = f"{every:,} parameters x {size} B ({kept})"
    parts = [MemoryPart("weights", every * size, how, smaller)]
    if learns:
        how, smaller = f"{trained:,} that train x {FLOAT32} B", f"lora, or {smaller}"
        parts.append(MemoryPart("gradients", trained * FLOAT32, how, smaller))
        how = f"AdamW: two moments of {how}"
        parts.append(MemoryPart("optimizer", 2 * trained * FLOAT32, how, smaller))
    if isinstance(role, TrainedRoleConfig) and role.reference_kl_weight and not model.adapters:
        how = f"{every:,} parameters x {computed} B: the model that the run began with"
        smaller = "lora, or no reference_kl_weight"
        parts.append(MemoryPart("reference model", every * computed, how, smaller))
    return parts


def role_memory(work: RoleWorkload, model: Architecture, cpu: bool) -> RoleMemory:
    """Returns the memory of one role on one device."""
    role, learned, passing = work.role, work.learned, list[MemoryPart]()
    if learned is not None and isinstance(role, TrainedRoleConfig):
        keys, rows = work.context_tokens + TILE, learned.most_samples * work.answer_tokens
        passing = [activations(model, role, learned.largest, keys, cpu), logits(model, rows)]
    engine = role.engine.memory(
        EngineWorkload(
            parameters=model.parameters + model.adapters,
            parameter_bytes=SIZES[role.dtype],
            cache_bytes_per_token=cache_bytes_per_token(model, role),
            # A layer's input and output, and the three vectors within its MLP.
            pass_bytes_per_token=(2 * model.hidden + 3 * model.intermediate) * FLOAT32,
            vocabulary=model.vocabulary,
            conversations=round(work.tasks * work.conversations),
            longest_tokens=round(work.longest_tokens),
            new_prompt_tokens=round(work.prefilled_tokens / work.calls),
            answers_per_prompt=work.samples,
        )
    )
    generating = engine.parts if engine else ()
    parts = [*held(model, role, learned is not None), *passing, *generating]
    total, how = sum(part.bytes for part in parts), "all of it: nothing is given back in between"
    lines = [Quantity(part.name, part.bytes, "bytes", part.how) for part in parts]
    if engine is None:
        how = "without the engine, whose memory is not known"
        lines.append(Quantity("engine", None, "bytes", "its config class gives no `memory`"))
    elif engine.freed_between_phases:
        how = "all but the smaller of activations with logits, and the engine's: it sleeps then"
        total -= min(sum(part.bytes for part in group) for group in (passing, generating))
    lines.append(Quantity("total", total, "bytes", how))
    largest = max(parts, key=lambda part: part.bytes)
    remedy = f"the largest part is {largest.name}: try {largest.remedy}"
    return RoleMemory(PlanSection(f"Memory: {work.name}", tuple(lines)), total, remedy)


def place(
    memories: Mapping[str, RoleMemory], device: str, size: float, count: int
) -> tuple[bool, PlanSection]:
    """Returns whether the roles fit on so many devices of that size, and what lies on each.

    The largest role comes first, and each lies whole on the device that is emptiest."""
    devices: list[list[str]] = [[] for _ in range(count)]

    def load(names: list[str]) -> float:
        return sum(memories[name].total for name in names)

    for name in sorted(memories, key=lambda role: -memories[role].total):
        min(devices, key=load).append(name)
    lines: list[Quantity] = []
    for i, names in enumerate(devices):
        left = amount(abs(size - load(names)), "bytes")
        verdict = f"fits, {left} left" if load(names) <= size else f"DOES NOT FIT, {left} too much"
        how = f"{' + '.join(names) or 'unused'}, of {amount(size, 'bytes')}: {verdict}"
        lines.append(Quantity(f"{device} {i}", load(names), "bytes", how))
    for name, memory in memories.items():
        if memory.total > size:
            how = f"a role cannot be split over devices; {memory.remedy}"
            lines.append(Quantity(f"{name}: remedy", None, "", how))
    return max(map(load, devices)) <= size, PlanSection("Memory: devices", tuple(lines))
