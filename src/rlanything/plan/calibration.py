"""How fast this machine is: a few passes through two random layers of a model's own shape."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlanything.engines.attention import ATTENTION, trie_arguments
from rlanything.engines.base import Sampling
from rlanything.engines.cache import RaggedCache
from rlanything.engines.draft import draw
from rlanything.plan.architecture import Architecture
from rlanything.plan.devices import Rates
from rlanything.role_settings import Role

LAYERS = 2
VOCABULARY = 512
"""Looking tokens up costs no arithmetic, so a small embedding does."""
DEPTH = 256
"""Tokens in the cache before those that are timed."""
TRAINING_TOKENS = 1024
PREFILL_ROWS, PREFILL_WIDTH = 32, 48
ROWS = 64
"""Answers that are decoded and drawn together."""
CHOICES = 4
"""Tokens among which one is drawn, where they are listed (`decoding: choices`)."""
COPIED = 32_000_000
"""float32 numbers, more than caches hold."""
ROUNDS = 7


def measure(model: Architecture, role: Role, threads: int, listed: bool) -> Rates:
    """Takes seconds where layers are small; memory as for two of the model's layers.

    `listed` tells whether tokens are drawn among listed ones."""
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    drawing = _seconds(_draw(model.vocabulary, listed)) / ROWS
    return replace(_layers(model, role.dtype), draw_seconds=drawing)


@cache
def _layers(model: Architecture, dtype: str) -> Rates:
    """Roles of one architecture are measured once: a busy machine would tell them apart."""
    short = replace(model, layers=LAYERS, vocabulary=VOCABULARY)
    network = _network(short)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
        training = _seconds(lambda: _train(network))
        with torch.inference_mode():
            idle = _seconds(_pass(network, 1, 1))
            prefill = _seconds(_pass(network, PREFILL_ROWS, PREFILL_WIDTH))
            decode = _seconds(_pass(network, ROWS, 1))
    trained = 3 * short.forward_flops(TRAINING_TOKENS, TRAINING_TOKENS / 2, 0)
    prefilled = short.forward_flops(PREFILL_ROWS * PREFILL_WIDTH, DEPTH + PREFILL_WIDTH / 2, 0)
    decoded = short.forward_flops(ROWS, DEPTH, 0)
    return Rates(
        forward=prefilled / prefill,
        # One row takes the overhead and little else; the rest is what more rows take beyond it.
        decode=decoded / max(decode - idle, decode / 10),
        training=trained / training,
        bandwidth=_bandwidth(),
        pass_seconds=idle / LAYERS,
        draw_seconds=0.0,
        source=f"measured here: {LAYERS} layers of its shape, {torch.get_num_threads()} thread(s)",
    )


def _network(model: Architecture) -> Any:
    config = AutoConfig.for_model(
        model.kind,
        num_hidden_layers=model.layers,
        hidden_size=model.hidden,
        intermediate_size=model.intermediate,
        num_attention_heads=model.heads,
        num_key_value_heads=model.key_value_heads,
        head_dim=model.head_dim,
        vocab_size=model.vocabulary,
    )
    network = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    network.set_attn_implementation(ATTENTION)
    return network.get_decoder().eval()


def _train(network: Any) -> None:
    """One forward and backward pass of a chain of tokens, as a pack is computed."""
    positions = torch.arange(TRAINING_TOKENS)
    layout = trie_arguments(np.full(TRAINING_TOKENS, TRAINING_TOKENS), torch.device("cpu"))
    out = network(input_ids=positions[None] % VOCABULARY, position_ids=positions[None], **layout)
    network.zero_grad(set_to_none=True)
    out.last_hidden_state.sum().backward()


def _pass(network: Any, rows: int, width: int) -> Callable[[], object]:
    """A forward pass of `width` new tokens on each of `rows`, with the engine's cache."""
    cache = RaggedCache()
    cache.tokens = [[0] * DEPTH for _ in range(rows)]
    ids = torch.zeros(rows, width, dtype=torch.long)

    def run() -> object:
        positions, mask = cache.begin(range(rows), width)
        return network(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
        )

    return run


def _draw(vocabulary: int, listed: bool) -> Callable[[], object]:
    logits = torch.randn(ROWS, vocabulary, generator=torch.Generator().manual_seed(0))
    allowed = [tuple(range(CHOICES)) if listed else ()] * ROWS
    return lambda: draw(logits, allowed, [0.5] * ROWS, Sampling(1.0, 1))


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
