"""Attention over a trie, against a dense mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from rlanything.engines.hf import attention
from rlanything.engines.hf.attention import TILE, FlexLayout, TileLayout, layout_of, visible

CPU = torch.device("cpu")


def random_ends(nodes: int, seed: int) -> np.ndarray:
    """A random forest: every node's parent is one on the path of the node before it, or none."""
    rng = np.random.default_rng(seed)
    ends = np.full(nodes, nodes)
    path: list[int] = []
    for node in range(nodes):
        # Chains with branches now and then, as conversations are.
        keep = len(path) if rng.random() < 0.95 else int(rng.integers(0, len(path) + 1))
        for closed in path[keep:]:
            ends[closed] = node
        path = [*path[:keep], node]
    return ends


def stem_and_branches(stem: int, *branches: int) -> np.ndarray:
    starts = np.cumsum([stem, *branches])
    own = [np.full(size, start + size) for size, start in zip(branches, starts, strict=False)]
    return np.concatenate([np.full(stem, starts[-1]), *own])


WITH_WHOLE_BLOCKS = stem_and_branches(3 * TILE + 5, 2 * TILE, 300, 7)


def random_inputs(nodes: int, seed: int, heads: int, shared: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(  # pyright: ignore[reportReturnType]
        torch.randn(1, count, nodes, 16, generator=generator, dtype=torch.float64).requires_grad_()
        for count in (heads, shared, shared)
    )


def dense(query: Tensor, key: Tensor, value: Tensor, ends: np.ndarray) -> Tensor:
    nodes = np.arange(len(ends))
    mask = torch.from_numpy(visible(ends, nodes, nodes)).to(query.device)
    seen = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=0.3, enable_gqa=True
    )
    return seen.transpose(1, 2)


@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (4, 2), (3, 1)])
@pytest.mark.parametrize("nodes", [1, TILE - 1, TILE, TILE + 1, 5 * TILE + 7])
def test_tiles_and_their_gradients_are_those_of_a_dense_mask(nodes, heads, shared):
    ends = random_ends(nodes, nodes)
    inputs = random_inputs(nodes, nodes, heads, shared)
    found = TileLayout(ends, CPU).attend(*inputs, 0.3)
    expected = dense(*inputs, ends)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    weights = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(found, inputs, weights),
        torch.autograd.grad(expected, inputs, weights),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_a_wide_trie_costs_its_depth_not_its_size():
    # 40 branches of 100 nodes on a stem of 100: a tile sees at most stem, branch and itself.
    ends = stem_and_branches(100, *[100] * 40)
    work = sum(bucket.sees.numel() for bucket in TileLayout(ends, CPU)._buckets)
    assert work <= 4224 * (100 + 100 + TILE + TILE)
    assert work < len(ends) ** 2 / 8


@pytest.mark.parametrize("nodes", [TILE, 3 * TILE + 7])
def test_flex_attention_sees_what_tiles_see(nodes):
    # On CPUs FlexAttention has no backward pass; elsewhere the test below asks for its gradients.
    ends = random_ends(nodes, nodes)
    query, key, value = (each.detach() for each in random_inputs(nodes, nodes, 4, 2))
    found = FlexLayout(ends, CPU).attend(query, key, value, 0.3)
    torch.testing.assert_close(found, dense(query, key, value, ends), rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # torch's own
def test_compiled_it_skips_blocks_and_sees_the_same(monkeypatch: pytest.MonkeyPatch):
    ends = WITH_WHOLE_BLOCKS
    query, key, value = (each.detach().float() for each in random_inputs(len(ends), 0, 4, 2))
    layout = FlexLayout(ends, CPU)
    monkeypatch.setattr(layout, "_kernel", attention._compiled_flex)
    found = layout.attend(query, key, value, 0.3)
    torch.testing.assert_close(found, dense(query, key, value, ends), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ends", [WITH_WHOLE_BLOCKS, random_ends(4 * TILE + 1, 3)])
def test_flex_attention_asks_key_by_key_only_where_some_are_seen(ends):
    mask = FlexLayout(ends, CPU)._mask
    nodes = np.arange(-(-len(ends) // TILE) * TILE)
    reach = np.concatenate([ends, nodes[len(ends) :] + 1])
    blocks = visible(reach, nodes, nodes).reshape(len(nodes) // TILE, TILE, -1, TILE)
    some = np.logical_or.reduce(blocks, (1, 3))
    whole = np.logical_and.reduce(blocks, (1, 3))
    for wanted, counts, lists in (
        (some & ~whole, mask.kv_num_blocks, mask.kv_indices),
        (whole, mask.full_kv_num_blocks, mask.full_kv_indices),
    ):
        assert counts is not None
        assert lists is not None
        found = [row[:count].tolist() for row, count in zip(lists[0, 0], counts[0, 0], strict=True)]
        assert found == [np.flatnonzero(row).tolist() for row in wanted]


@pytest.mark.parametrize("ends", [random_ends(3 * TILE + 7, 0), WITH_WHOLE_BLOCKS])
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_flex_attention_and_its_gradients_are_those_of_a_dense_mask(ends):
    device = torch.device("cuda")
    query, key, value = inputs = [
        each.detach().float().to(device).requires_grad_()
        for each in random_inputs(len(ends), 0, 4, 2)
    ]
    layout = layout_of(ends, device)
    assert isinstance(layout, FlexLayout)
    found = layout.attend(query, key, value, 0.3)
    expected = dense(query, key, value, ends)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    for one, other in zip(
        torch.autograd.grad(found.sum(), inputs),
        torch.autograd.grad(expected.sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
