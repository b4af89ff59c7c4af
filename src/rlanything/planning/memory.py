"""The memory that a role needs, in bytes, with AdamW."""

from __future__ import annotations

from dataclasses import dataclass

from rlanything.config.engines import EngineConfig, EngineWorkload
from rlanything.config.roles import RoleConfig, TrainedRoleConfig
from rlanything.engines.hf.attention import TILE
from rlanything.planning.architecture import BFLOAT16, FLOAT32, Architecture
from rlanything.planning.quantities import PlanSection, Quantity
from rlanything.planning.training import TrainingWorkload
from rlanything.planning.workload import RoleWorkload

MOMENTS = 2
"""AdamW keeps two numbers a weight, and a step count a tensor."""
LOGIT_COPIES = 4
"""The peak of a backward pass holds logits, log-probs, and the gradient of each."""
REMEDIES = {
    "weights": "a smaller model",
    "gradients": "lora, or a smaller model",
    "optimizer": "lora, or a smaller model",
    "reference model": "lora, or no reference_kl_weight",
    "activations": "a lower max_pack_tokens, or lower max_tokens and max_steps: a pack holds at "
    "least one whole sample",
    "logits": "a lower max_pack_tokens or max_tokens",
}
"""The settings that make each part smaller; an engine's config names those of its own parts."""


@dataclass(frozen=True, slots=True)
class RoleMemory:
    """The memory of one role on its device."""

    section: PlanSection
    """The parts, `total` last."""
    remedies: dict[str, str]

    @property
    def total(self) -> float:
        return self.section.value("total")

    def remedy(self) -> str:
        """Returns, in words, the largest part and what makes it smaller."""
        *parts, _ = self.section.quantities
        largest = max(parts, key=lambda part: part.value or 0.0)
        return f"the largest part is {largest.name}: try {self.remedies[largest.name]}"


def compute_size(role: RoleConfig) -> int:
    """Returns the bytes of a number in the type that the role computes in."""
    return BFLOAT16 if role.dtype == "bfloat16" else FLOAT32


def weight_size(role: RoleConfig) -> int:
    """Returns the bytes of a weight: a role that never trains keeps them in what it computes in."""
    return FLOAT32 if isinstance(role, TrainedRoleConfig) else compute_size(role)


def weight_bytes(model: Architecture, role: RoleConfig) -> int:
    return weight_size(role) * (model.parameters + model.adapter_parameters)


def gradient_bytes(model: Architecture) -> int:
    return FLOAT32 * model.trained_parameters


def optimizer_bytes(model: Architecture) -> int:
    return MOMENTS * FLOAT32 * model.trained_parameters + FLOAT32 * model.trained_tensors


def cache_bytes_per_token(model: Architecture, role: RoleConfig) -> int:
    """Returns the bytes of keys and values: with autocast keys leave RoPE in float32, values a
    matrix product in bfloat16."""
    return model.layers * model.key_width * (FLOAT32 + compute_size(role))


def layer_bytes_per_token(model: Architecture, role: RoleConfig, keys: float) -> float:
    """Returns what one layer keeps of a token for its backward pass, if it sees `keys` tokens.

    Two norms keep their input, what it is normalised to, and (as the input of a linear layer) their
    output; attention its queries, its output twice, and its keys and values; the MLP four tensors
    between its matrices. On CPUs a tile gathers the keys it looks at and keeps its mask as numbers.
    """
    size = compute_size(role)
    norms = 2 * model.hidden * (2 * FLOAT32 + size)
    norms += (model.query_width + model.key_width) * 2 * FLOAT32 if model.head_norms else 0
    attention = 3 * model.query_width * size
    if role.device == "cpu":
        gathered = 2 * model.key_width * keys / TILE
        mask = model.heads / model.key_value_heads * keys
        attention += (gathered + mask) * size
    else:
        attention += 2 * model.key_width * size
    return norms + attention + 4 * model.intermediate * size


def activation_bytes(
    model: Architecture, role: TrainedRoleConfig, tokens: float, keys: float
) -> float:
    """Returns the bytes kept for the backward pass of `tokens` computed tokens, without logits.

    With gradient checkpointing: what enters each layer, and all of one layer at a time."""
    cast = BFLOAT16 * model.layer_matrices if role.dtype == "bfloat16" else 0
    layer = layer_bytes_per_token(model, role, keys)
    if role.gradient_checkpointing:
        return tokens * (model.layers * model.hidden * FLOAT32 + layer) + cast / model.layers
    return tokens * model.layers * layer + cast


def role_memory(work: RoleWorkload, model: Architecture, role: RoleConfig) -> RoleMemory:
    """Returns the memory of one role on one device; `role.device` says which kind."""
    counted = f"{model.parameters:,} parameters"
    if model.adapters:
        counted = f"({counted} + {model.adapter_parameters:,} of adapters)"
    kept = "float32" if weight_size(role) == FLOAT32 else role.dtype
    how = f"{counted} x {weight_size(role)} B ({kept})"
    held = [Quantity("weights", weight_bytes(model, role), "bytes", how)]
    passing: list[Quantity] = []
    if work.learned is not None and isinstance(role, TrainedRoleConfig):
        held += _learner(model)
        if role.reference_kl_weight and role.lora is None:
            how = f"{counted} x {compute_size(role)} B: the model that the run began with"
            value = compute_size(role) * model.parameters
            held.append(Quantity("reference model", value, "bytes", how))
        passing = _passes(model, role, work.learned, work.answer_tokens)
    config: EngineConfig = role.engine
    engine = config.memory(_asked(work, model, role))
    parts = engine.parts if engine else ()
    generating = [Quantity(part.name, part.bytes, "bytes", part.how) for part in parts]
    all_of_it = sum(part.value or 0.0 for part in (*held, *passing, *generating))
    how = "all of it: nothing is given back in between"
    if engine is None:
        generating = [Quantity("engine", None, "bytes", "its config class gives no `memory`")]
        how = "without the engine, whose memory is not known"
    elif engine.freed_between_phases:
        passes, spoken = (sum(p.value or 0.0 for p in group) for group in (passing, generating))
        all_of_it -= min(passes, spoken)
        how = "all but the smaller of activations with logits, and the engine's: it sleeps then"
    total = Quantity("total", all_of_it, "bytes", how)
    section = PlanSection(f"Memory: {work.name}", (*held, *passing, *generating, total))
    return RoleMemory(section, REMEDIES | {part.name: part.remedy for part in parts})


def _asked(work: RoleWorkload, model: Architecture, role: RoleConfig) -> EngineWorkload:
    return EngineWorkload(
        parameters=model.parameters + model.adapter_parameters,
        parameter_bytes=compute_size(role),
        cache_bytes_per_token=cache_bytes_per_token(model, role),
        # A layer's input and output, and the three vectors within its MLP.
        pass_bytes_per_token=(2 * model.hidden + 3 * model.intermediate) * FLOAT32,
        vocabulary=model.vocabulary,
        conversations=round(work.conversations),
        longest_tokens=round(work.longest_tokens),
        new_prompt_tokens=round(work.prefilled_tokens / work.calls),
        answers_per_prompt=work.answers_per_prompt,
    )


def _learner(model: Architecture) -> list[Quantity]:
    trained = f"{model.trained_parameters:,} {'of adapters' if model.adapters else 'parameters'}"
    tensors = f"{model.trained_tensors:,} tensors x {FLOAT32} B"
    how = f"AdamW: {trained} x {MOMENTS} x {FLOAT32} B + {tensors}"
    return [
        Quantity("gradients", gradient_bytes(model), "bytes", f"{trained} x {FLOAT32} B"),
        Quantity("optimizer", optimizer_bytes(model), "bytes", how),
    ]


def _passes(
    model: Architecture, role: TrainedRoleConfig, learned: TrainingWorkload, answer_tokens: float
) -> list[Quantity]:
    keys = learned.context + TILE
    per_layer = layer_bytes_per_token(model, role, keys)
    rows = learned.most_samples * answer_tokens
    size = f"{model.layers} layers x {per_layer:,.0f} B"
    if role.gradient_checkpointing:
        size = f"({model.layers} layers x {model.hidden} x {FLOAT32} B + {per_layer:,.0f} B)"
    cast = " + matrices in bfloat16" if role.dtype == "bfloat16" else ""
    return [
        Quantity(
            "activations",
            activation_bytes(model, role, learned.largest, keys),
            "bytes",
            f"{learned.largest:,} tokens in the largest pass x {size}{cast}",
        ),
        Quantity(
            "logits",
            rows * model.vocabulary * FLOAT32 * LOGIT_COPIES,
            "bytes",
            f"{rows:,.0f} response tokens in a pass x {model.vocabulary:,} x {FLOAT32} B x "
            f"{LOGIT_COPIES} (with log-probs and their gradients)",
        ),
    ]
