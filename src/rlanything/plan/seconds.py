"""Seconds of each phase: what is computed, over how fast; what is read, over how fast."""

from __future__ import annotations

from dataclasses import dataclass

from rlanything.plan.architecture import FLOAT32, Architecture
from rlanything.plan.devices import Rates
from rlanything.plan.episodes import Batches
from rlanything.plan.figures import Figure, amount, brief
from rlanything.plan.generation import Generation
from rlanything.plan.memory import cache_bytes_per_token
from rlanything.role_settings import Role

FORWARD_AND_BACKWARD = 3
"""A backward pass computes twice what a forward pass does."""
ADAMW_ACCESSES = 7
"""Weight, gradient and two moments are read, all but the gradient written: so many numbers."""


@dataclass(frozen=True, slots=True)
class Player:
    """A role's model, as a device sees it."""

    name: str
    model: Architecture
    role: Role
    rates: Rates


def generating(
    phase: str, player: Player, work: Generation, host_seconds: float, host: str
) -> list[Figure]:
    """Prefill, decoding and the rest, then their sum under the phase's name."""
    model, rates = player.model, player.rates
    prefill = model.forward_flops(work.prefilled, work.keys, 0)
    decode = model.forward_flops(work.sampled, work.keys, work.sampled)
    weights = model.layer_matrices + model.head_matrix
    # Autocast makes a bfloat16 copy in every pass: float32 is read, the copy written and read.
    each = 2 * FLOAT32 if player.role.dtype == "bfloat16" else FLOAT32
    per_key = cache_bytes_per_token(model, player.role)
    read = work.decode_passes * weights * each + work.sampled * work.keys * per_key
    computing, reading = decode / rates.decode, read / rates.bandwidth
    passes = work.prefill_passes + work.decode_passes
    parts = [
        Figure(
            f"{phase}: prefill",
            prefill / rates.forward,
            "s",
            f"{amount(prefill, 'FLOP')} / {amount(rates.forward, 'FLOP/s')}; {work.prefilled:,.0f} "
            f"tokens x (2 x {model.layer_matrices:,} weights + 4 x {model.layers} layers x "
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
        Figure(
            f"{phase}: passes",
            passes * model.layers * rates.pass_seconds,
            "s",
            f"{passes:,} passes x {model.layers} layers x {rates.pass_seconds:.3g} s of overhead",
        ),
        Figure(
            f"{phase}: drawing",
            work.sampled * rates.draw_seconds,
            "s",
            f"{work.sampled:,.0f} tokens x {rates.draw_seconds:.3g} s",
        ),
    ]
    if host:
        parts.append(Figure(f"{phase}: environment", host_seconds, "s", host))
    return [*parts, _sum(phase, parts)]


def updating(phase: str, player: Player, work: Batches, answer_tokens: float) -> list[Figure]:
    """Forward and backward passes and the optimizer's steps, then their sum."""
    model, rates = player.model, player.rates
    rows = work.samples * answer_tokens
    flops = FORWARD_AND_BACKWARD * model.forward_flops(work.computed_tokens, work.depth, rows)
    moved = work.updates * model.parameters * FLOAT32 * ADAMW_ACCESSES
    parts = [
        Figure(
            f"{phase}: passes",
            flops / rates.training,
            "s",
            f"{amount(flops, 'FLOP')} / {amount(rates.training, 'FLOP/s')}; 3 x "
            f"({work.computed_tokens:,} tokens x (2 x {model.layer_matrices:,} weights + 4 x "
            f"{model.layers} layers x {model.query_width} x {work.depth:,.0f} keys) + {rows:,.0f} "
            f"logits x 2 x {model.head_matrix:,})",
        ),
        Figure(
            f"{phase}: optimizer",
            moved / rates.bandwidth,
            "s",
            f"{work.updates} steps x {model.parameters:,} parameters x {ADAMW_ACCESSES} x "
            f"{FLOAT32} B / {amount(rates.bandwidth, 'bytes/s')}",
        ),
    ]
    return [*parts, _sum(phase, parts)]


def _sum(phase: str, parts: list[Figure]) -> Figure:
    total = sum(part.value or 0.0 for part in parts)
    return Figure(phase, total, "s", " + ".join(brief(part.value or 0.0) for part in parts))
