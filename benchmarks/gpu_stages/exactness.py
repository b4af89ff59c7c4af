"""Stages that compare ways to compute the same."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed
from torch._C._distributed_c10d import HashStore

from gpu_stages.checks import Bench, Check, at_most
from gpu_stages.made_up import Tagged, one_pack, random_model
from rlanything.config.roles import PolicyConfig
from rlanything.engines.hf.attention import FlexLayout, Layout, TileLayout
from rlanything.engines.hf.model import LanguageModel, full_tensor
from rlanything.learning.learner import Learner
from rlanything.learning.packing import pack
from rlanything.learning.sharding import SINGLE, SeatGroup, seats_of_world

SETTINGS = PolicyConfig(learning_rate=1e-4, kl_weight=0.0, max_grad_norm=1e9)
LENGTHS = (1000, 3000, 1400, 2600, 1800, 2200, 1200, 2800)
"""Distinct tokens of packs that follow one another."""


@contextmanager
def one_seat(bench: Bench) -> Iterator[SeatGroup]:
    """Gives a group of one seat, sharded as a larger one is."""
    backend = "nccl" if bench.gpu else "gloo"
    limit = datetime.timedelta(seconds=120)
    # Without a port, which another program might have.
    alone: dict[str, Any] = {"store": HashStore(), "rank": 0, "world_size": 1}
    distributed.init_process_group(backend, timeout=limit, **alone)
    try:
        yield seats_of_world("cuda" if bench.gpu else "cpu")
    finally:
        distributed.destroy_process_group()


def step(
    model: LanguageModel, settings: PolicyConfig, samples: Tagged, group: SeatGroup = SINGLE
) -> tuple[Tensor, Tensor]:
    """Returns the gradient and the new weights of an optimizer step of a copy, both [weights]."""
    own = LanguageModel(copy.deepcopy(model.network), model.tokenizer, model.autocast)
    Learner(own, settings, group=group).update(samples, 0)
    weights = list(own.network.parameters())
    gradients = [full_tensor(weight.grad) for weight in weights if weight.grad is not None]
    return _flat(gradients), _flat([full_tensor(weight.detach()) for weight in weights])


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def difference(ours: Tensor, theirs: Tensor) -> float:
    """Returns the L2 norm of a difference, relative to the second."""
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm())


def sharding(bench: Bench) -> list[Check]:
    """FSDP2 of one seat against the plain learner, in float32."""
    model = random_model(bench, "0.5B", None)
    samples = one_pack(bench, 200 if bench.dry else 4096, judge=False)
    settings = SETTINGS.model_copy(update={"max_pack_tokens": 100 if bench.dry else 2048})
    gradient, weights = step(model, settings, samples)
    with one_seat(bench) as group:
        sharded, moved = step(model, settings, samples, group)
    return [
        at_most("gradient, relative difference", difference(sharded, gradient), 1e-6),
        at_most("weights, relative difference", difference(moved, weights), 1e-6),
        Check("gradient, norm", f"{float(gradient.norm()):.4g}", float(gradient.norm()) > 0),
    ]


def trie(bench: Bench) -> list[Check]:
    """A trie in bfloat16 inside `fully_shard`, with recomputation, against rows of padded samples:
    what they are wrong by, compared with padded rows in float32; and compiled graphs."""
    exact = random_model(bench, "0.5B", None)
    rounded = LanguageModel(exact.network, exact.tokenizer, torch.bfloat16)
    samples = one_pack(bench, 200 if bench.dry else 4096, judge=True)
    padded = SETTINGS.model_copy(update={"packing": "padded"})
    shared = SETTINGS.model_copy(update={"gradient_checkpointing": True})
    truth, _ = step(exact, padded, samples)
    rows, _ = step(rounded, padded, samples)
    with one_seat(bench) as group:
        tree, _ = step(rounded, shared, samples, group)
        graphs = _graphs(bench, rounded, shared, group)
    allowed = 1.5 * difference(rows, truth) + 1e-3
    middle = len(graphs) // 2
    return [
        Check("padded against float32", f"{difference(rows, truth):.2e}"),
        at_most("trie against float32", difference(tree, truth), allowed),
        Check("trie against padded", f"{difference(tree, rows):.2e}"),
        Check(
            f"graphs compiled after each of {len(graphs)} packs of different lengths",
            f"{', '.join(map(str, graphs))} (none new in the second half)",
            graphs[-1] == graphs[middle],
        ),
    ]


def _graphs(
    bench: Bench, model: LanguageModel, settings: PolicyConfig, group: SeatGroup
) -> list[int]:
    from torch._dynamo.utils import counters

    own = LanguageModel(copy.deepcopy(model.network), model.tokenizer, model.autocast)
    learner, seen = Learner(own, settings, group=group), list[int]()
    begun = counters["stats"]["unique_graphs"]
    for length in LENGTHS:
        learner.update(one_pack(bench, length // 20 if bench.dry else length, judge=False), 0)
        seen.append(counters["stats"]["unique_graphs"] - begun)
    return seen


def tiles(bench: Bench) -> list[Check]:
    """Attention over a trie by tiles against FlexAttention: results, gradients and time."""
    [batch] = pack([s for _, s in one_pack(bench, 300 if bench.dry else 8192, True)], 1 << 40)
    device, dtype = torch.device(bench.device), torch.bfloat16 if bench.gpu else torch.float32
    sizes = [(heads, batch.computed_tokens, 64) for heads in (14, 2, 2)]
    torch.manual_seed(0)
    inputs = [torch.randn(1, *size, device=device, dtype=dtype) for size in sizes]
    layouts: dict[str, Layout] = {
        "tiles": TileLayout(batch.ends, device),
        "flex": FlexLayout(batch.ends, device),
    }
    # There is no backward pass of FlexAttention on CPUs.
    found = {name: _attended(layout, inputs, bench.gpu) for name, layout in layouts.items()}
    bound = 2e-2 if bench.gpu else 1e-5
    names = ("attended", "query's gradient", "key's gradient", "value's gradient")
    pairs = zip(names, found["tiles"], found["flex"], strict=False)
    checks = [
        at_most(f"{name}, tiles against flex", difference(a, b), bound) for name, a, b in pairs
    ]
    seconds = {
        name: bench.seconds(partial(_attended, layout, inputs, bench.gpu), 1, 5)
        for name, layout in layouts.items()
    }
    told = ", ".join(f"{name} {1e3 * value:.3g} ms" for name, value in seconds.items())
    faster = bench.speed(seconds["flex"] <= seconds["tiles"])
    return [*checks, Check(f"{batch.computed_tokens} nodes, flex is faster", told, faster)]


def _attended(layout: Layout, inputs: Sequence[Tensor], backward: bool) -> list[Tensor]:
    given: list[Any] = [each.clone().requires_grad_(backward) for each in inputs]
    query, key, value = given
    seen = layout.attend(query, key, value, None)
    if not backward:
        return [seen]
    seen.float().square().sum().backward()
    return [seen.detach(), *(each.grad for each in given)]
