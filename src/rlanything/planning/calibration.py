"""How fast this machine is: a few passes through two random layers of a model's own shape."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig

from rlanything.config.roles import LoraSettings, PolicyConfig, RoleConfig, TrainedRoleConfig
from rlanything.engines.base import Sampling
from rlanything.engines.hf.attention import ATTENTION, trie_arguments
from rlanything.engines.hf.cache import RaggedCache
from rlanything.engines.hf.draft import draw
from rlanything.planning.architecture import FLOAT32, Architecture, build, describe
from rlanything.planning.devices import Rates
from rlanything.planning.generation import Generation

LAYERS = 2
VOCABULARY = 512
"""Looking tokens up costs no arithmetic, so a small embedding does."""
TRAINING_TOKENS = 1024
CHOICES = 4
"""Tokens among which one is drawn, where they are listed (`decoding: choices`)."""
COPIED = 32_000_000
"""float32 numbers, more than caches hold."""
ROUNDS = 5


def measure(model: Architecture, role: RoleConfig, threads: int, work: Generation) -> Rates:
    """At the size of the role's own passes: rows decoded together, tokens prefilled together, and
    tokens that are seen. Takes seconds where layers are small; memory as for two of the layers."""
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    listed = isinstance(role, PolicyConfig) and role.decoding == "choices"
    rows = max(1, round(work.sampled / max(work.decode_passes, 1)))
    width = max(1, round(work.prefilled / max(work.prefill_passes, 1) / rows))
    depth = max(1, round(work.keys))
    network = _network(model)
    short = describe(network)
    decoder = network.get_decoder().eval()
    training, bandwidth = 0.0, _bandwidth()
    with torch.autocast("cpu", torch.bfloat16, enabled=role.dtype == "bfloat16"):
        if isinstance(role, TrainedRoleConfig):
            flops = short.training_flops(TRAINING_TOKENS, TRAINING_TOKENS / 2, 0)
            training = flops / _seconds(lambda: _train(network, decoder))
        with torch.inference_mode():
            # Episodes that end leave gaps between those that go on, whose keys are then copied in
            # every pass; what is judged is sorted, so that none are left.
            gap = 2 if isinstance(role, PolicyConfig) else 1
            one = _seconds(_pass(decoder, range(1), 1, depth))
            prefill = _seconds(_pass(decoder, range(0, rows * gap, gap), width, depth))
            decode = _seconds(_pass(decoder, range(0, rows * gap, gap), 1, depth))
    # A pass of one row reads the weights, which `bandwidth` says, and has its overhead.
    read = FLOAT32 * (short.layer_matrices + short.adapter_parameters) / bandwidth
    overhead = max(one - read, 0.0)
    return Rates(
        forward=short.forward_flops(rows * width, depth + width / 2, 0) / prefill,
        decode=short.forward_flops(rows, depth, 0) / max(decode - overhead, decode / 10),
        training=training,
        bandwidth=bandwidth,
        pass_seconds=overhead / LAYERS,
        draw_seconds=_seconds(_draw(rows, model.vocabulary, listed)) / rows,
        source=f"measured here: {LAYERS} layers of its shape, {torch.get_num_threads()} thread(s); "
        f"prefill {rows} x {width}, decoding {rows} rows, {depth} tokens before them",
    )


def _network(model: Architecture) -> Any:
    config = AutoConfig.for_model(
        model.kind,
        num_hidden_layers=LAYERS,
        hidden_size=model.hidden,
        intermediate_size=model.intermediate,
        num_attention_heads=model.heads,
        num_key_value_heads=model.key_value_heads,
        head_dim=model.head_dim,
        vocab_size=VOCABULARY,
    )
    lora = LoraSettings(rank=model.adapters.rank) if model.adapters else None
    network = build(config, lora, "cpu", "calibration")
    network.set_attn_implementation(ATTENTION)
    return network


def _train(network: Any, decoder: Any) -> None:
    """One forward and backward pass of a chain of tokens, as a pack is computed."""
    positions = torch.arange(TRAINING_TOKENS)
    layout = trie_arguments(np.full(TRAINING_TOKENS, TRAINING_TOKENS), torch.device("cpu"))
    out = decoder(input_ids=positions[None] % VOCABULARY, position_ids=positions[None], **layout)
    network.zero_grad(set_to_none=True)
    out.last_hidden_state.sum().backward()


def _pass(network: Any, rows: range, width: int, depth: int) -> Callable[[], object]:
    """A forward pass of `width` new tokens on each of `rows` that hold `depth` already."""
    cache = RaggedCache()
    for row in cache.assign([str(row) for row in range(rows.stop)], [[0]] * rows.stop):
        cache.tokens[row] += [0] * depth
    ids = torch.zeros(len(rows), width, dtype=torch.long)

    def run() -> object:
        positions, mask = cache.begin(rows, width)
        return network(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
        )

    return run


def _draw(rows: int, vocabulary: int, listed: bool) -> Callable[[], object]:
    logits = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0))
    allowed = [tuple(range(CHOICES)) if listed else ()] * rows
    return lambda: draw(logits, allowed, [0.5] * rows, Sampling(1.0, 1))


def _bandwidth() -> float:
    """Bytes/s that one copy reads and writes."""
    source = torch.zeros(COPIED)
    target = torch.zeros(COPIED)
    return 2 * 4 * COPIED / _seconds(lambda: target.copy_(source))


def _seconds(work: Callable[[], object]) -> float:
    """The median of a few rounds; the first, which warms up, does not count."""
    # One thread's own seconds do not grow with what else the machine does.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    work()
    rounds: list[float] = []
    for _ in range(ROUNDS):
        begun = clock()
        work()
        rounds.append(clock() - begun)
    return statistics.median(rounds)
