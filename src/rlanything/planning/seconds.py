"""Seconds of each phase: what is computed, over how fast; what is read, over how fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlanything.config.roles import RoleConfig, TrainedRoleConfig
from rlanything.engines.vllm.config import VLLMEngineConfig
from rlanything.planning.architecture import BFLOAT16, FLOAT32, Architecture
from rlanything.planning.devices import Rates
from rlanything.planning.episodes import Batches
from rlanything.planning.figures import Figure, amount, brief
from rlanything.planning.memory import cache_bytes_per_token, weight_size
from rlanything.planning.players import Player

ADAMW_ACCESSES = 7
"""Weight, gradient and two moments are read, all but the gradient written: so many numbers."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A role's model in this process, and how fast its device is at it."""

    model: Architecture
    role: RoleConfig
    rates: Rates


def generating(
    phase: str, player: Player, computed: Computed, own: Sequence[Figure]
) -> list[Figure]:
    """Prefill, decoding and the rest (`own`), then their sum under the phase's name."""
    work, model, rates = player.generated, computed.model, computed.rates
    prefill = model.forward_flops(work.prefilled, work.keys, 0)
    matrices = model.layer_matrices + model.adapter_parameters
    decode = model.forward_flops(work.sampled, work.keys, work.sampled)
    weights = matrices + model.head_matrix
    each = _read_bytes(computed.role)
    per_key = cache_bytes_per_token(model, computed.role)
    read = work.decode_passes * weights * each + work.sampled * work.keys * per_key
    computing, reading = decode / rates.decode, read / rates.bandwidth
    passes = work.decode_passes
    parts = [
        Figure(
            f"{phase}: prefill",
            prefill / rates.forward,
            "s",
            f"{amount(prefill, 'FLOP')} / {amount(rates.forward, 'FLOP/s')}; {work.prefilled:,.0f} "
            f"tokens x (2 x {matrices:,} weights + 4 x {model.layers} layers x "
            f"{model.query_width} x {work.keys:,.0f} keys)",
        ),
        Figure(
            f"{phase}: decoding",
            max(computing, reading),
            "s",
            f"the longer of {amount(decode, 'FLOP')} / {amount(rates.decode, 'FLOP/s')} = "
            f"{brief(computing)} s and {amount(read, 'bytes')} / "
            f"{amount(rates.bandwidth, 'bytes/s')} = {brief(reading)} s; read: "
            f"{work.decode_passes:,} passes x {weights:,} weights x {each} B + {work.sampled:,.0f} "
            f"tokens x {work.keys:,.0f} keys x {per_key:,} B",
        ),
    ]
    # What is not known of a device is said among its rates; that of prefill has its overhead in it.
    if rates.pass_seconds:
        parts.append(
            Figure(
                f"{phase}: overhead",
                passes * model.layers * rates.pass_seconds,
                "s",
                f"{passes:,} passes x {model.layers} layers x {rates.pass_seconds:.3g} s",
            )
        )
    if rates.draw_seconds:
        parts.append(
            Figure(
                f"{phase}: drawing",
                work.sampled * rates.draw_seconds,
                "s",
                f"{work.sampled:,.0f} tokens x {rates.draw_seconds:.3g} s",
            )
        )
    parts += own
    return [*parts, _sum(phase, parts)]


def _read_bytes(role: RoleConfig) -> int:
    """Moved for each weight in a pass."""
    if role.dtype == "float32":
        return FLOAT32
    if isinstance(role.engine, VLLMEngineConfig) or weight_size(role) == BFLOAT16:
        return BFLOAT16
    # Autocast makes a copy in every pass: float32 is read, the copy written and read.
    return FLOAT32 + 2 * BFLOAT16


def updating(phase: str, player: Player, work: Batches, computed: Computed) -> list[Figure]:
    """Forward and backward passes and the optimizer's steps, then their sum."""
    model, rates = computed.model, computed.rates
    rows = work.samples * player.answer_tokens
    flops = model.training_flops(work.computed_tokens, work.depth, rows)
    each = model.training_flops_per_weight
    why = "4: the weights are frozen" if model.adapters else "6: forward 2, backward 4"
    lora = f" + 6 x {model.adapter_parameters:,} of adapters" if model.adapters else ""
    moved = work.updates * model.trained_parameters * FLOAT32 * ADAMW_ACCESSES
    parts = [
        Figure(
            f"{phase}: passes",
            flops / rates.training,
            "s",
            f"{amount(flops, 'FLOP')} / {amount(rates.training, 'FLOP/s')}; "
            f"{work.computed_tokens:,} tokens x ({each} x {model.layer_matrices:,} weights{lora} + "
            f"12 x {model.layers} layers x {model.query_width} x {work.depth:,.0f} keys) + "
            f"{rows:,.0f} logits x {each} x {model.head_matrix:,} ({why})",
        ),
        Figure(
            f"{phase}: optimizer",
            moved / rates.bandwidth,
            "s",
            f"{work.updates} steps x {model.trained_parameters:,} parameters x {ADAMW_ACCESSES} x "
            f"{FLOAT32} B / {amount(rates.bandwidth, 'bytes/s')}",
        ),
    ]
    again = model.forward_flops(work.computed_tokens, work.depth, rows)
    how = f"{amount(again, 'FLOP')} / {amount(rates.forward, 'FLOP/s')}: a forward pass more"
    if isinstance(player.role, TrainedRoleConfig) and player.role.old_logprobs == "recomputed":
        parts.append(Figure(f"{phase}: old log-probs", again / rates.forward, "s", how))
    if isinstance(player.role, TrainedRoleConfig) and player.role.gradient_checkpointing:
        parts.append(Figure(f"{phase}: layers again", again / rates.forward, "s", how))
    return [*parts, _sum(phase, parts)]


def _sum(phase: str, parts: list[Figure]) -> Figure:
    total = sum(part.value or 0.0 for part in parts)
    return Figure(phase, total, "s", " + ".join(brief(part.value or 0.0) for part in parts))
