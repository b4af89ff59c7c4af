"""Stages that measure an update: the share of the device's peak that it reaches, and its memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from gpu_stages.checks import Bench, Check
from gpu_stages.exactness import one_seat
from gpu_stages.made_up import Tagged, architecture, one_pack, random_model
from rlanything.config.roles import PolicyConfig
from rlanything.engines.hf.attention import TILE
from rlanything.learning.learner import Learner
from rlanything.learning.packing import pack
from rlanything.learning.sharding import SINGLE
from rlanything_planning.architecture import Architecture
from rlanything_planning.memory import activations, held, in_flight, logits

AIM = 0.4
"""The share of bfloat16's peak that an update should reach on distinct tokens."""
BEYOND = 0.25
"""How far a peak of memory may be from the plan, which knows activations within a quarter."""
PACKS = (8192, 24_576)


@dataclass(frozen=True, slots=True)
class Update:
    """One update on one pack, with and without recomputation as the memory allows."""

    settings: PolicyConfig
    layers: int
    planned: float
    """Bytes at its peak."""


def update_mfu(bench: Bench, shape: str) -> Iterator[Check]:
    """Updates of policy and judge with random weights of a shape, alone and as a sharded seat."""
    peak, source = bench.peak_flops()
    yield Check("peak in bfloat16", f"{peak / 1e12:.4g} TFLOP/s ({source})")
    for tokens in (150,) if bench.dry else PACKS:
        for judge in (False, True):
            for sharded in (False, True):
                yield from _measured(bench, shape, tokens, judge, sharded, peak)


def _measured(
    bench: Bench, shape: str, tokens: int, judge: bool, sharded: bool, peak: float
) -> list[Check]:
    samples = one_pack(bench, tokens, judge)
    chosen = _fitting(bench, shape, samples, sharded)
    model = random_model(bench, shape, torch.bfloat16, chosen.layers)
    own = Architecture(model.network)
    [batch] = pack([sample for _, sample in samples], tokens)
    rows = sum(len(sample.completion.token_ids) for _, sample in samples)
    keys = float((batch.positions + 1).mean())
    flops = own.flops(batch.computed_tokens, keys, rows, learns=True)
    if bench.gpu:
        torch.cuda.reset_peak_memory_stats()
    with one_seat(bench) if sharded else nullcontext(SINGLE) as group:
        seconds = _seconds(bench, Learner(model, chosen.settings, group=group), samples)
    reached = flops / seconds / peak
    whole = own.layers == architecture(bench, shape).layers
    name = f"{shape} {'judge' if judge else 'policy'}, {batch.computed_tokens:,} tokens"
    name += ", a sharded seat" if sharded else ", alone"
    name += "" if whole else f", {own.layers} layers"
    name += ", recomputing" if chosen.settings.gradient_checkpointing else ""
    figure = f"{seconds:.3g} s, {100 * reached:.1f}% of peak (aim {100 * AIM:.0f}%)"
    checks = [Check(name, figure, bench.speed(reached >= AIM))]
    if bench.gpu:
        used = torch.cuda.max_memory_allocated()
        figure = f"{used / 1e9:.1f} GB, planned {chosen.planned / 1e9:.1f} GB"
        close = abs(used / chosen.planned - 1) <= BEYOND
        checks.append(Check(f"{name}: memory", figure, bench.speed(close)))
    del model
    gc.collect()
    if bench.gpu:
        torch.cuda.empty_cache()
    return checks


def _seconds(bench: Bench, learner: Learner, samples: Tagged) -> float:
    warm_up, rounds = (1, 1) if bench.dry else (2, 3)
    return bench.seconds(lambda: learner.update(samples, 0), warm_up, rounds)


def _fitting(bench: Bench, shape: str, samples: Tagged, sharded: bool) -> Update:
    """Returns the way that needs least time among those that fit by plan: nothing computed again,
    recomputation, then half the layers and so on."""
    room = 0.9 * torch.cuda.mem_get_info()[0] if bench.gpu else 1e12
    layers = architecture(bench, shape).layers
    while True:
        model = architecture(bench, shape, layers)
        for again in (False, True):
            settings = PolicyConfig(
                dtype="bfloat16", max_pack_tokens=1 << 20, gradient_checkpointing=again
            )
            planned = planned_bytes(bench, model, settings, samples, sharded)
            if planned <= room or layers == 1:
                return Update(settings, layers, planned)
        layers //= 2


def planned_bytes(
    bench: Bench, model: Architecture, settings: PolicyConfig, samples: Tagged, sharded: bool
) -> float:
    """Returns the bytes of a learner and of its largest pass, as `rlanything plan` counts them."""
    [batch] = pack([sample for _, sample in samples], settings.max_pack_tokens)
    rows = sum(len(sample.completion.token_ids) for _, sample in samples)
    keys, cpu = float((batch.positions + 1).mean()) + TILE, not bench.gpu
    parts = [
        *held(model, settings, learns=True),
        activations(model, settings, batch.computed_tokens, keys, cpu, sharded and not cpu),
        logits(model, rows),
        *([in_flight(model, settings, cpu)] if sharded else []),
    ]
    return sum(part.bytes for part in parts)
