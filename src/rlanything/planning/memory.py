"""Bytes that a role needs, for what the code does, with AdamW."""

from __future__ import annotations

from collections.abc import Sequence

from rlanything.config.roles import RoleConfig, TrainedRoleConfig
from rlanything.engines.hf.attention import TILE
from rlanything.engines.vllm.config import VLLMEngineConfig
from rlanything.planning.architecture import BFLOAT16, FLOAT32, Architecture
from rlanything.planning.episodes import Batches
from rlanything.planning.figures import Figure, Section
from rlanything.planning.generation import Generation
from rlanything.planning.players import Player

MOMENTS = 2
"""AdamW keeps two numbers a weight, and a step count a tensor."""
LOGIT_COPIES = 4
"""At the peak of a backward pass: logits, log-probs, and the gradient of each."""
DRAW_BYTES = 28
"""A logit while a token is drawn: three times in float32, twice in float64."""


VLLM_PARTS = ("vLLM's weights", "vLLM's cache")


def weight_size(role: RoleConfig) -> int:
    """Bytes of each weight: a role that never trains keeps them in what it computes in."""
    lower = role.dtype == "bfloat16" and not isinstance(role, TrainedRoleConfig)
    return BFLOAT16 if lower else FLOAT32


def weight_bytes(model: Architecture, role: RoleConfig) -> int:
    return weight_size(role) * (model.parameters + model.adapter_parameters)


def gradient_bytes(model: Architecture) -> int:
    return FLOAT32 * model.trained_parameters


def optimizer_bytes(model: Architecture) -> int:
    return MOMENTS * FLOAT32 * model.trained_parameters + FLOAT32 * model.trained_tensors


def cache_bytes_per_token(model: Architecture, role: RoleConfig) -> int:
    """With autocast keys leave RoPE in float32, and values a matrix product in bfloat16."""
    values = BFLOAT16 if role.dtype == "bfloat16" else FLOAT32
    return model.layers * model.key_width * (FLOAT32 + values)


def layer_bytes_per_token(model: Architecture, role: RoleConfig, keys: float) -> float:
    """What one layer keeps of a token for its backward pass, if the token sees `keys` tokens.

    Two norms keep their input, what it is normalised to, and (as the input of a linear layer) their
    output; attention its queries, its output twice, and its keys and values; the MLP four tensors
    between its matrices. On CPUs a tile gathers the keys it looks at and keeps its mask as numbers.
    """
    c = BFLOAT16 if role.dtype == "bfloat16" else FLOAT32
    norms = 2 * model.hidden * (2 * FLOAT32 + c)
    norms += (model.query_width + model.key_width) * 2 * FLOAT32 if model.head_norms else 0
    attention = 3 * model.query_width * c
    if role.device == "cpu":
        gathered = 2 * model.key_width * keys / TILE
        mask = model.heads / model.key_value_heads * keys
        attention += (gathered + mask) * c
    else:
        attention += 2 * model.key_width * c
    return norms + attention + 4 * model.intermediate * c


def activation_bytes(
    model: Architecture, role: TrainedRoleConfig, tokens: float, keys: float
) -> float:
    """Kept for the backward pass of `tokens` computed tokens; logits are counted apart.

    With gradient checkpointing: what enters each layer, and all of one layer at a time."""
    cast = BFLOAT16 * model.layer_matrices if role.dtype == "bfloat16" else 0
    layer = layer_bytes_per_token(model, role, keys)
    if role.gradient_checkpointing:
        return tokens * (model.layers * model.hidden * FLOAT32 + layer) + cast / model.layers
    return tokens * model.layers * layer + cast


def role_memory(player: Player, model: Architecture, role: RoleConfig) -> Section:
    """Of one role on one device, `total` last; `role` says which kind of device."""
    generated, learned = player.generated, player.learned
    p = f"{model.parameters:,} parameters"
    if model.adapters:
        p = f"({p} + {model.adapter_parameters:,} of adapters)"
    size = weight_size(role)
    how = f"{p} x {size} B ({'float32' if size == FLOAT32 else role.dtype})"
    figures = [Figure("weights", weight_bytes(model, role), "bytes", how)]
    if learned is not None and isinstance(role, TrainedRoleConfig):
        figures += _learning(model, role, learned, player.answer_tokens)
        if role.reference_kl_weight and role.lora is None:
            size = BFLOAT16 if role.dtype == "bfloat16" else FLOAT32
            how = f"{p} x {size} B: the model that the run began with"
            figures.append(Figure("anchor", size * model.parameters, "bytes", how))
    if isinstance(role.engine, VLLMEngineConfig):
        figures += _vllm(model, role, role.engine)
    else:
        figures += _embedded(model, role, generated)
    figures.append(_total(figures, role))
    return Section(f"Memory: {player.name}", tuple(figures))


def _total(figures: Sequence[Figure], role: RoleConfig) -> Figure:
    value = {figure.name: figure.value or 0.0 for figure in figures}
    total = sum(value.values())
    if not isinstance(role.engine, VLLMEngineConfig) or not role.engine.sleep:
        return Figure("total", total, "bytes", "all of it: nothing is given back in between")
    learning = sum(value.get(name, 0.0) for name in ("activations", "logits"))
    asleep = sum(value[name] for name in VLLM_PARTS)
    how = "all but the smaller of activations with logits, and vLLM's: it sleeps while they are"
    return Figure("total", total - min(learning, asleep), "bytes", how)


def _embedded(model: Architecture, role: RoleConfig, generated: Generation) -> list[Figure]:
    rows, columns = generated.cache_rows, generated.cache_columns
    per_token = cache_bytes_per_token(model, role)
    working = (
        generated.prefill_batch * (2 * model.hidden + 3 * model.intermediate) * FLOAT32
        + generated.batch_prompts * generated.longest * per_token / model.layers
        + generated.batch_rows * model.vocabulary * DRAW_BYTES
    )
    return [
        Figure(
            "KV cache",
            rows * columns * per_token,
            "bytes",
            f"{rows} rows x {columns:,} tokens (the longest, and room to grow) x {per_token:,} B",
        ),
        Figure(
            "generating",
            working,
            "bytes",
            f"{generated.prefill_batch:,} prefilled tokens x (2 x {model.hidden} + 3 x "
            f"{model.intermediate}) x 4 B + {generated.batch_prompts} prompts x "
            f"{generated.longest:,.0f} keys of one layer + {generated.batch_rows} answers x "
            f"{model.vocabulary:,} logits x {DRAW_BYTES} B",
        ),
    ]


def _vllm(model: Architecture, role: RoleConfig, engine: VLLMEngineConfig) -> list[Figure]:
    """A process of its own, with the weights once more and a cache of the size that it is told."""
    size = BFLOAT16 if role.dtype == "bfloat16" else FLOAT32
    slept = "; given back while other roles speak and learn" if engine.sleep else ""
    parameters = model.parameters + model.adapter_parameters
    beside = ", adapters among them," if model.adapters else ""
    return [
        Figure(
            VLLM_PARTS[0],
            parameters * size,
            "bytes",
            f"{parameters:,} parameters{beside} x {size} B ({role.dtype}){slept}",
        ),
        Figure(VLLM_PARTS[1], engine.memory_gib * 2**30, "bytes", f"engine.memory_gib{slept}"),
    ]


def _learning(
    model: Architecture, role: TrainedRoleConfig, learned: Batches, answer_tokens: float
) -> list[Figure]:
    p = f"{model.trained_parameters:,} {'of adapters' if model.adapters else 'parameters'}"
    keys = learned.depth + TILE
    per_layer = layer_bytes_per_token(model, role, keys)
    rows = learned.most_samples * answer_tokens
    logits = rows * model.vocabulary * FLOAT32 * LOGIT_COPIES
    size = f"{model.layers} layers x {per_layer:,.0f} B"
    cast = " + the matrices once more in bfloat16" if role.dtype == "bfloat16" else ""
    if role.gradient_checkpointing:
        size = f"({model.layers} layers x {model.hidden} x 4 B + {per_layer:,.0f} B)"
        cast = f" + {model.layers}th of the matrices in bfloat16" if cast else ""
    return [
        Figure("gradients", gradient_bytes(model), "bytes", f"{p} x {FLOAT32} B"),
        Figure(
            "optimizer",
            optimizer_bytes(model),
            "bytes",
            f"AdamW: {p} x {MOMENTS} x {FLOAT32} B + {model.trained_tensors:,} tensors x 4 B",
        ),
        Figure(
            "activations",
            activation_bytes(model, role, learned.largest, keys),
            "bytes",
            f"{learned.largest:,} tokens in the largest pass x {size}{cast}",
        ),
        Figure(
            "logits",
            logits,
            "bytes",
            f"{rows:,.0f} response tokens in a pass x {model.vocabulary:,} x 4 B x {LOGIT_COPIES} "
            "(with log-probs and their gradients)",
        ),
    ]
