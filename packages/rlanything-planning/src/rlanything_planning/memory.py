"""Memory that a role needs per seat, in bytes, with AdamW, and the memory of a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from rlanything.config.engines import EngineWorkload, MemoryPart
from rlanything.config.roles import RoleConfig, TrainedRoleConfig
from rlanything.engines.hf.attention import TILE
from rlanything.learning.scorer import MAX_LOGITS
from rlanything_planning.architecture import Architecture
from rlanything_planning.report import PlanSection, Quantity, amount
from rlanything_planning.workload import RoleWorkload

SIZES = {"float32": (FLOAT32 := 4), "bfloat16": 2}
"""Bytes per number, by the type that a role computes in."""
LOGIT_COPIES = 3.25
"""Copies of logits at the peak, at the start of the backward pass: log-probs, their gradients
before and after normalisation, and a mask of disallowed tokens."""


class RoleMemory(NamedTuple):
    """The memory of one role on a seat; its largest part, and how to reduce it."""

    section: PlanSection
    held: float
    """Bytes always resident."""
    movable: float
    """Part of `held` that a learner releases during generation: weights and optimizer state move to
    the host, gradients are freed."""
    speaking: float
    """Extra bytes while generating."""
    learning: float
    """Extra bytes while training."""
    remedy: str

    @property
    def total(self) -> float:
        return self.held + max(self.speaking, self.learning)


def cache_bytes_per_token(model: Architecture, role: RoleConfig) -> int:
    """Returns the bytes of keys and values per token, in the type computed in."""
    return 2 * model.layers * model.key_width * SIZES[role.dtype]


def activations(
    model: Architecture,
    role: TrainedRoleConfig,
    tokens: int,
    keys: float,
    tiles: bool,
    sharded: bool = False,
) -> MemoryPart:
    """Returns the activations kept for the backward pass of tokens that attend to `keys` each,
    without logits.

    In a layer, two norms keep their input, its normalised value, and their output (the input of a
    linear layer); attention keeps its queries, keys and values, and its output twice; the MLP keeps
    four tensors. On CPUs a tile gathers its keys and keeps its mask as numbers. With gradient
    checkpointing: the input of each layer, and all of one layer. Autocast keeps its bfloat16
    matrices; shards are gathered in it instead (`in_flight`)."""
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
    if role.dtype == "bfloat16" and not sharded:
        total += size * model.layer_matrices * at_once
        how += " + matrices in bfloat16"
    remedy = "a lower max_pack_tokens, max_tokens or max_steps: a pack holds a whole sample"
    if not role.gradient_checkpointing:
        remedy = f"gradient_checkpointing=true, or {remedy}"
    return MemoryPart("activations", total, how, remedy)


def logits(model: Architecture, rows: float) -> MemoryPart:
    """Returns the peak memory of an update for this many rows of logits, MAX_LOGITS at a time."""
    at_once = min(rows, MAX_LOGITS // model.vocabulary)
    total = at_once * model.vocabulary * FLOAT32 * LOGIT_COPIES
    how = f"{at_once:,.0f} of {rows:,.0f} response tokens in a pass (MAX_LOGITS {MAX_LOGITS:,} at "
    how += f"once) x {model.vocabulary:,} x {FLOAT32} B x {LOGIT_COPIES} (log-probs, two "
    how += "gradients of them, and a mask)"
    return MemoryPart("logits", total, how, "a lower max_pack_tokens or max_tokens")


def in_flight(model: Architecture, role: RoleConfig, cpu: bool) -> MemoryPart:
    """Returns what FSDP2 gathers in a pass: the root's weights (embedding, output layer)
    throughout, and two layers, one of them prefetched; the gradients of the root and one layer, in
    the type computed in and again in float32 for the reduction."""
    # On CPUs autocast computes in bfloat16 from weights gathered in float32.
    size, layers = FLOAT32 if cpu else SIZES[role.dtype], model.layers
    root = model.parameters - model.layer_matrices
    gathered = root + 2 * (model.layer_matrices + model.adapters) / layers
    learned = model.adapters / layers or root + model.layer_matrices / layers
    how = f"gathered {gathered:,.0f} x {size} B (embedding, output layer, two layers) + gradients "
    how += f"{learned:,.0f} x ({size} + {FLOAT32}) B"
    total = gathered * size + learned * (size + FLOAT32)
    return MemoryPart("shards made whole", total, how, _lora_or(model, "a smaller model"))


def whole_copy(model: Architecture, role: RoleConfig, cpu: bool) -> MemoryPart:
    """Returns the copy of a sharded model that each seat keeps: its engine computes with it, or
    gets its weights from it. On a GPU it is in the type computed in."""
    size = FLOAT32 if cpu else SIZES[role.dtype]
    every = model.parameters + model.adapters + model.tower
    how = f"{every:,} parameters x {size} B: the learner's are sharded, the engine's are not"
    return MemoryPart("engine's copy", every * size, how, _narrower(size, "a smaller model"))


def snapshot(model: Architecture, role: TrainedRoleConfig, seats: int = 1) -> MemoryPart:
    """Returns the host memory of a checkpoint while it is written, at the first seat: weights in
    float32, of the adapters alone if there are any, and two moments of its shard of what trains."""
    weights = model.adapters or model.parameters + model.tower
    trained = model.adapters or model.parameters + model.tower * role.train_vision
    how = f"{weights:,} parameters x {FLOAT32} B, and two moments of {trained:,} that train"
    how += f" / {seats} seats" if seats > 1 else ""
    total = (weights + 2 * trained / seats) * FLOAT32
    return MemoryPart("snapshot", total, how, _lora_or(model, "a smaller model"))


def _lora_or(model: Architecture, remedy: str) -> str:
    return remedy if model.adapters else f"lora, or {remedy}"


def _narrower(size: int, remedy: str) -> str:
    return remedy if size < FLOAT32 else f"{remedy}, or dtype: bfloat16"


def held(model: Architecture, role: RoleConfig, learns: bool, seats: int = 1) -> list[MemoryPart]:
    """Returns the memory of a role's model and learner that is always resident on each seat: a
    shard if it learns, a whole copy otherwise."""
    every, trained = model.parameters + model.adapters, model.adapters or model.parameters
    # A model that never trains keeps its weights in its compute type.
    kept = "float32" if isinstance(role, TrainedRoleConfig) else role.dtype
    size, computed = SIZES[kept], SIZES[role.dtype]
    smaller = "a smaller model, or more seats" if learns else "a smaller model"
    if not isinstance(role, TrainedRoleConfig):
        smaller = _narrower(size, smaller)
    seats = seats if learns else 1
    shard = f" / {seats} seats" if seats > 1 else ""
    how = f"{every:,} parameters x {size} B ({kept}){shard}"
    parts = [MemoryPart("weights", every * size / seats, how, smaller)]
    if learns:
        how = f"{trained:,} that train x {FLOAT32} B{shard}"
        smaller = _lora_or(model, smaller)
        parts.append(MemoryPart("gradients", trained * FLOAT32 / seats, how, smaller))
        how = f"AdamW: two moments of {how}"
        parts.append(MemoryPart("optimizer", 2 * trained * FLOAT32 / seats, how, smaller))
    if model.tower:
        parts.append(_tower(model, role, size, learns))
    compared = learns and isinstance(role, TrainedRoleConfig) and role.reference_kl_weight
    if compared and not model.adapters:
        how = f"{every:,} parameters x {computed} B{shard}: the model that the run began with"
        smaller = "lora, or no reference_kl_weight"
        total = every * computed / seats + model.tower * computed
        how += f", and {model.tower:,} x {computed} B of its tower" * (model.tower > 0)
        parts.append(MemoryPart("reference model", total, how, smaller))
    return parts


def _tower(model: Architecture, role: RoleConfig, size: int, learns: bool) -> MemoryPart:
    """Returns the memory of the tower, whole on every seat: weights only if frozen, weights with
    gradients and optimizer state if trained."""
    trains = learns and isinstance(role, TrainedRoleConfig) and role.train_vision
    numbers = size + 3 * FLOAT32 if trains else size
    how = f"{model.tower:,} parameters x {numbers} B, " + ("which train" if trains else "frozen")
    return MemoryPart("tower", model.tower * numbers, how, "a smaller model")


def role_memory(work: RoleWorkload, model: Architecture, cpu: bool, seats: int) -> RoleMemory:
    """Returns the memory of one role on each seat."""
    role, learned, passing = work.role, work.learned, list[MemoryPart]()
    sharded = learned is not None and seats > 1
    if learned is not None and isinstance(role, TrainedRoleConfig):
        keys, rows = work.context_tokens + TILE, learned.most_samples * work.answer_tokens
        gathered = [in_flight(model, role, cpu)] if sharded else []
        kept = activations(model, role, learned.largest, keys, cpu, sharded and not cpu)
        passing = [kept, logits(model, rows), *gathered]
    engine = role.engine.memory(
        EngineWorkload(
            parameters=model.parameters + model.adapters + model.tower,
            parameter_bytes=SIZES[role.dtype],
            cache_bytes_per_token=cache_bytes_per_token(model, role),
            # A layer's input and output, and the three vectors in its MLP.
            pass_bytes_per_token=(2 * model.hidden + 3 * model.intermediate) * FLOAT32,
            vocabulary=model.vocabulary,
            conversations=ceil(round(work.tasks * work.conversations) / seats),
            longest_tokens=round(work.longest_tokens),
            new_prompt_tokens=round(work.prefilled_tokens / work.calls / seats),
            answers_per_prompt=work.samples,
        )
    )
    generating = engine.parts if engine else ()
    always = held(model, role, learned is not None, seats)
    if sharded:
        always.append(whole_copy(model, role, cpu))
    if cpu and learned is not None and isinstance(role, TrainedRoleConfig):
        always.append(snapshot(model, role, seats))
    parts = [*always, *passing, *generating]
    lines = [Quantity(part.name, part.bytes, "bytes", part.how) for part in parts]
    bound, speaking, learning = map(_sum, (always, generating, passing))
    how = "all of it: the room that one leaves may be of no use to the other"
    if engine is None:
        how = "without the engine, whose memory is not known"
        lines.append(Quantity("engine", None, "bytes", "its config class gives no `memory`"))
    if engine is not None and engine.freed_between_phases:
        how = "all but the smaller of what learning needs and the engine's: it sleeps then"
    else:
        bound, speaking = bound + speaking, 0.0
    total = bound + max(speaking, learning)
    lines.append(Quantity("total", total, "bytes", how))
    away = ("weights", "gradients", "optimizer") if sharded else ()
    movable = _sum(part for part in always if part.name in away)
    largest = max(parts, key=lambda part: part.bytes)
    remedy = f"the largest part is {largest.name}: try {largest.remedy}"
    section = PlanSection(f"Memory: {work.name}", tuple(lines))
    return RoleMemory(section, bound, movable, speaking, learning, remedy)


def _sum(parts: Iterable[MemoryPart]) -> float:
    return sum(part.bytes for part in parts)


def on_devices(
    places: Sequence[Sequence[str]],
    memories: Mapping[str, RoleMemory],
    device: str,
    size: float,
    cpu: bool,
    rests: bool = False,
    largest: tuple[str, float] | None = None,
) -> tuple[float, PlanSection]:
    """Returns the free bytes of the fullest device of that size, negative if roles do not fit, and
    the calculation; each device holds the named roles. `rests`: learners are offloaded during
    generation; `largest`: the largest device known, with its size.

    Roles take turns, so besides everything resident a GPU needs only the maximum over roles. On
    CPUs the sum counts: malloc does not reuse the freed memory of another role
    (benchmarks/plan.md)."""
    most = sum if cpu else max
    free, lines = size, list[Quantity]()
    for i, names in enumerate(places):
        roles = [memories[name] for name in names]
        bound, movable = sum(role.held for role in roles), sum(role.movable for role in roles)
        speaking = most(role.speaking for role in roles)
        learning = most(role.learning for role in roles)
        moved = bound + max(speaking - movable, learning)
        needs = moved if rests else bound + max(speaking, learning)
        free = min(free, size - needs)
        how = f"{' + '.join(names)}: always {amount(bound, 'bytes')}, and the most of "
        how += f"speaking {amount(speaking, 'bytes')} and learning {amount(learning, 'bytes')}"
        how += f", less {amount(movable, 'bytes')} that rest while roles speak" if rests else ""
        how += "; of "
        how += f"{amount(size, 'bytes')}: {_verdict(size - needs)}"
        lines.append(Quantity(f"{device} {i}", needs, "bytes", how))
        if movable and not rests:
            how = f"with cluster.offload=true, which takes {amount(movable, 'bytes')} away while "
            how += f"roles speak: {_verdict(size - moved)}"
            lines.append(Quantity(f"{device} {i}: at rest", moved, "bytes", how))
        if needs > size:
            if largest is not None and largest[1] > size:
                how = f"{largest[0]}, of {amount(largest[1], 'bytes')}: "
                how += _verdict(largest[1] - needs)
                lines.append(Quantity(f"{device} {i}: largest known", largest[1], "bytes", how))
            worst = max(names, key=lambda name: memories[name].total)
            how = f"of {worst} {memories[worst].remedy}"
            lines.append(Quantity(f"{device} {i}: remedy", None, "", how))
    return free, PlanSection("Memory: each device", tuple(lines))


def _verdict(free: float) -> str:
    left = amount(abs(free), "bytes")
    return f"fits, {left} left" if free >= 0 else f"DOES NOT FIT, {left} too much"
