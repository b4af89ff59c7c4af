"""Attention over a trie: a token attends to its ancestors and itself, and nothing else is computed.

A trie is laid out depth first, so that a node's descendants follow it without a gap. One number per
node describes it: `ends[k]`, one past the last descendant of k. Then

    q sees k  where  k <= q < ends[k].

`attend` is registered with transformers under the name ATTENTION; without a layout it is SDPA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

ATTENTION = "rlanything"
BEYOND_MASKS = ("dropout", "position_bias", "softcap", "cache", "output_attentions")
"""Attention features that a mask does not express."""
TILE = 128
"""Number of queries that share keys; FlexAttention's block size, and faster on CPUs than 64 and
256."""


class Layout(Protocol):
    """The attention pattern of a trie's nodes."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """[1, nodes, heads, dim] for query [1, heads, nodes, dim] and key and value
        [1, key_value_heads, nodes, dim]."""
        ...


def layout_of(ends: np.ndarray, device: torch.device) -> Layout:
    """Returns FlexAttention on devices with a backward pass for it, tiles elsewhere."""
    return FlexLayout(ends, device) if device.type == "cuda" else TileLayout(ends, device)


def trie_arguments(ends: np.ndarray, device: torch.device) -> dict[str, Any]:
    """Returns a decoder's arguments, besides ids and positions, for computing a trie.

    A 4-dimensional mask is passed through unchanged, so this one is a dummy: the layout replaces
    it."""
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
    return {"attention_mask": mask, "use_cache": False, "layout": layout_of(ends, device)}


def visible(ends: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Returns [queries, keys], True if the query's node sees the key's."""
    return (keys <= queries[:, None]) & (queries[:, None] < ends[keys])


def tile_keys(ends: np.ndarray, start: int) -> np.ndarray:
    """Returns the nodes seen from the tile at `start`, in order.

    In depth-first order, any ancestor before the tile of one of its nodes is also an ancestor of
    its first node."""
    ancestors = np.flatnonzero(ends[:start] > start)
    return np.concatenate([ancestors, np.arange(start, min(start + TILE, len(ends)))])


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Tiles with similar numbers of keys, padded to the largest."""

    keys: Tensor
    """Node numbers [tiles, keys]."""
    sees: Tensor
    """Mask [tiles, TILE, keys]."""


class TileLayout:
    """SDPA with a boolean mask of each tile of queries against its ancestors and itself.

    The work per node is its depth, not the size of the trie, whose dense mask is mostly empty."""

    def __init__(self, ends: np.ndarray, device: torch.device) -> None:
        starts = range(0, len(ends), TILE)
        keys = [tile_keys(ends, start) for start in starts]
        by_size: dict[int, list[int]] = {}
        for tile, nodes in enumerate(keys):
            by_size.setdefault(-(-len(nodes) // TILE), []).append(tile)
        groups = [by_size[size] for size in sorted(by_size)]
        self._buckets = [
            _bucket(ends, [starts[tile] for tile in group], [keys[tile] for tile in group], device)
            for group in groups
        ]
        order = np.concatenate(groups)
        self._order = torch.from_numpy(order).to(device)
        self._back = torch.from_numpy(np.argsort(order)).to(device)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        heads, nodes, dim = query.shape[1:]
        shared = key.shape[1]
        padding = -nodes % TILE
        # Query heads that share a key head become rows of one tile, so keys are never repeated.
        tiles = functional.pad(query[0], (0, 0, 0, padding))
        tiles = tiles.view(shared, heads // shared, -1, TILE, dim).permute(2, 0, 1, 3, 4)
        tiles = _rows(tiles.flatten(1), self._order).view(len(self._order), shared, -1, dim)
        key_rows, value_rows = (states[0].transpose(0, 1).flatten(1) for states in (key, value))
        outputs: list[Tensor] = []
        done = 0
        for bucket in self._buckets:
            count, width = bucket.keys.shape
            keys, values = (
                _rows(rows, bucket.keys).view(count, width, shared, -1).transpose(1, 2)
                for rows in (key_rows, value_rows)
            )
            outputs.append(
                functional.scaled_dot_product_attention(
                    tiles[done : done + count],
                    keys,
                    values,
                    attn_mask=bucket.sees.repeat(1, heads // shared, 1)[:, None],
                    scale=scaling,
                )
            )
            done += count
        seen = _rows(torch.cat(outputs).flatten(1), self._back)
        seen = seen.view(len(self._back), heads, TILE, -1).transpose(1, 2).flatten(0, 1)
        return seen[None, :nodes]


def _bucket(
    ends: np.ndarray, starts: list[int], keys: list[np.ndarray], device: torch.device
) -> _Bucket:
    width = max(map(len, keys))
    padded = np.zeros((len(keys), width), dtype=np.int64)
    sees = np.zeros((len(keys), TILE, width), dtype=bool)
    for row, (start, nodes) in enumerate(zip(starts, keys, strict=True)):
        queries = np.arange(start, min(start + TILE, len(ends)))
        padded[row, : len(nodes)] = nodes
        sees[row, : len(queries), : len(nodes)] = visible(ends, queries, nodes)
        # A row without keys would be NaN, which masks cannot remove from gradients.
        sees[row, len(queries) :, 0] = True
    return _Bucket(torch.from_numpy(padded).to(device), torch.from_numpy(sees).to(device))


def _rows(table: Tensor, rows: Tensor) -> Tensor:
    """Returns rows of a table [rows, width]. Unlike indexing, an embedding's backward pass sums the
    gradients of a row in a fixed order, and fast."""
    return functional.embedding(rows, table)


class FlexLayout:
    """FlexAttention with a block mask: blocks that no query of a tile sees are skipped, and fully
    visible blocks need no mask."""

    def __init__(self, ends: np.ndarray, device: torch.device) -> None:
        starts = range(0, len(ends), TILE)
        seen = [np.unique(tile_keys(ends, start) // TILE) for start in starts]
        # Padding sees itself: attention is undefined for a query without keys.
        padding = np.arange(len(ends), len(seen) * TILE) + 1
        reach = np.concatenate([ends, padding])
        # The last query that sees all keys of a block.
        common = reach.reshape(-1, TILE).min(1)
        whole, partly = list[np.ndarray](), list[np.ndarray]()
        for row, tiles in enumerate(seen):
            all_of_it = (tiles < row) & (common[tiles] >= (row + 1) * TILE)
            whole.append(tiles[all_of_it])
            partly.append(tiles[~all_of_it])
        reaches = torch.from_numpy(reach).to(device)

        def sees(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (key <= query) & (query < reaches[key])

        self._mask = BlockMask.from_kv_blocks(
            *_block_lists(partly, device),
            *_block_lists(whole, device),
            BLOCK_SIZE=TILE,
            mask_mod=sees,
            seq_lengths=(len(reach), len(reach)),
        )
        self._kernel: Any = _compiled_flex if device.type == "cuda" else flex_attention

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        nodes = query.shape[2]
        query, key, value = (
            functional.pad(states, (0, 0, 0, -nodes % TILE)) for states in (query, key, value)
        )
        seen = self._kernel(
            query, key, value, block_mask=self._mask, scale=scaling, enable_gqa=True
        )
        return seen[:, :, :nodes].transpose(1, 2)


def _block_lists(rows: list[np.ndarray], device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns the number of blocks of each row, [1, 1, rows], and the blocks, [1, 1, rows,
    rows]."""
    blocks = np.zeros((1, 1, len(rows), len(rows)), dtype=np.int32)
    for row, tiles in enumerate(rows):
        blocks[0, 0, row, : len(tiles)] = tiles
    counts = np.array([[[len(tiles) for tiles in rows]]], dtype=np.int32)
    return torch.from_numpy(counts).to(device), torch.from_numpy(blocks).to(device)


# fullgraph: fail if it cannot be compiled, instead of silently using a dense mask.
_compiled_flex: Any = torch.compile(flex_attention, fullgraph=True)


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    layout: Layout | None = None,
    repeated_masks: dict[int, Tensor] | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls in every layer; the layout and the masks
    repeated so far come from the decoder's arguments.

    Raises `NotImplementedError` for anything beyond scaled dot-product attention."""
    if layout is None:
        if attention_mask is not None and not any(more.get(name) for name in BEYOND_MASKS):
            masks = {} if repeated_masks is None else repeated_masks
            return _grouped(query, key, value, attention_mask, scaling, masks), None
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **more
        )
    if more.get("dropout"):
        raise NotImplementedError("dropout would make sampler and learner differ; use eval()")
    for name in ("sliding_window", "softcap", "position_bias", "s_aux"):
        if more.get(name) is not None:
            raise NotImplementedError(f"its attention has {name}")
    # With autocast, RoPE returns queries and keys in float32.
    query, key = query.to(value.dtype), key.to(value.dtype)
    return layout.attend(query, key, value, scaling), None


def _grouped(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scaling: float | None,
    repeated_masks: dict[int, Tensor],
) -> Tensor:
    """Computes SDPA [rows, width, heads, dim] with query heads that share a key head as rows of
    one. Repeating keys, as transformers does, takes three times as long on CPUs.

    `repeated_masks`: the pass's mask by number of heads in a group, filled by its first layer."""
    rows, heads, width, dim = query.shape
    shared = key.shape[1]
    group = heads // shared
    if group not in repeated_masks:
        repeated_masks[group] = mask.expand(-1, -1, width, -1).repeat(1, 1, group, 1)
    seen = functional.scaled_dot_product_attention(
        query.reshape(rows, shared, -1, dim),
        key,
        value,
        attn_mask=repeated_masks[group],
        scale=scaling,
    )
    # Values may be narrower than keys, hence -1. GPU kernels return positions before heads, so this
    # cannot be a `view`.
    return seen.reshape(rows, heads, width, -1).transpose(1, 2)


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
