"""Attention over a trie: a token sees its ancestors and itself, and nothing else is computed.

A trie is laid out depth first, so that a node's descendants follow it without a gap, and one number
a node describes it: `ends[k]`, one past the last descendant of k. Then

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
"""What an attention may have that a mask does not say."""
TILE = 128
"""Queries that look at the same keys; on CPUs 64 and 256 are slower, and it is Flex's own block."""


class Layout(Protocol):
    """How the nodes of a trie look at one another."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """[1, nodes, heads, dim] for query [1, heads, nodes, dim] and key and value
        [1, key_value_heads, nodes, dim]."""
        ...


def layout_of(ends: np.ndarray, device: torch.device) -> Layout:
    """Returns FlexAttention where there is a backward pass for it, tiles elsewhere."""
    return FlexLayout(ends, device) if device.type == "cuda" else TileLayout(ends, device)


def trie_arguments(ends: np.ndarray, device: torch.device) -> dict[str, Any]:
    """Returns what a decoder is called with, beside ids and positions, to compute a trie.

    A mask of four dimensions is passed on untouched, so none is built: the layout is it."""
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
    return {"attention_mask": mask, "use_cache": False, "layout": layout_of(ends, device)}


def visible(ends: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Returns [queries, keys], True where the query's node sees the key's."""
    return (keys <= queries[:, None]) & (queries[:, None] < ends[keys])


def tile_keys(ends: np.ndarray, start: int) -> np.ndarray:
    """Returns the nodes that those in the tile at `start` see, in order.

    Depth first, whatever lies before the tile and is an ancestor of one of its nodes is one of its
    first node: it reaches over that one."""
    ancestors = np.flatnonzero(ends[:start] > start)
    return np.concatenate([ancestors, np.arange(start, min(start + TILE, len(ends)))])


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Tiles with about equally many keys, padded to the most."""

    keys: Tensor
    """[tiles, keys], node numbers."""
    sees: Tensor
    """[tiles, TILE, keys]"""


class TileLayout:
    """Each tile of queries against its ancestors and itself only, by SDPA with a boolean mask.

    The work is a node's depth, not the size of the trie: the dense mask of a trie is mostly empty.
    """

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
        # Query heads that share a key head become rows of one tile: keys are never repeated.
        tiles = functional.pad(query[0], (0, 0, 0, padding))
        tiles = tiles.view(shared, heads // shared, -1, TILE, dim).permute(2, 0, 1, 3, 4)
        tiles = _rows(tiles.flatten(1), self._order).view(len(self._order), shared, -1, dim)
        key_rows, value_rows = (each[0].transpose(0, 1).flatten(1) for each in (key, value))
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
    width = max(len(each) for each in keys)
    padded = np.zeros((len(keys), width), dtype=np.int64)
    sees = np.zeros((len(keys), TILE, width), dtype=bool)
    for row, (start, nodes) in enumerate(zip(starts, keys, strict=True)):
        queries = np.arange(start, min(start + TILE, len(ends)))
        padded[row, : len(nodes)] = nodes
        sees[row, : len(queries), : len(nodes)] = visible(ends, queries, nodes)
        # A row that saw nothing would be NaN, which no mask takes out of a gradient again.
        sees[row, len(queries) :, 0] = True
    return _Bucket(torch.from_numpy(padded).to(device), torch.from_numpy(sees).to(device))


def _rows(table: Tensor, rows: Tensor) -> Tensor:
    """Returns rows of a table [rows, width]. Unlike indexing, an embedding's backward pass adds up
    what belongs to one row in a fixed order, and fast."""
    return functional.embedding(rows, table)


class FlexLayout:
    """FlexAttention with a block mask: blocks that no query of a tile sees are skipped, and blocks
    that all of them see whole are not asked key by key."""

    def __init__(self, ends: np.ndarray, device: torch.device) -> None:
        starts = range(0, len(ends), TILE)
        seen = [np.unique(tile_keys(ends, start) // TILE) for start in starts]
        # Padding to whole tiles sees itself: a query that sees nothing has no defined attention.
        padding = np.arange(len(ends), len(seen) * TILE) + 1
        reach = np.concatenate([ends, padding])
        # How far all keys of a block reach.
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
    """Returns how many blocks each row has, [1, 1, rows], and which, [1, 1, rows, rows]."""
    blocks = np.zeros((1, 1, len(rows), len(rows)), dtype=np.int32)
    for row, tiles in enumerate(rows):
        blocks[0, 0, row, : len(tiles)] = tiles
    counts = np.array([[[len(tiles) for tiles in rows]]], dtype=np.int32)
    return torch.from_numpy(counts).to(device), torch.from_numpy(blocks).to(device)


# Whole: where it cannot be compiled it fails, rather than fall back to a dense mask in silence.
_compiled_flex: Any = torch.compile(flex_attention, fullgraph=True)


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    layout: Layout | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """The attention that transformers calls in every layer. The layout comes through the decoder's
    arguments.

    Raises `NotImplementedError` for attention that is more than a scaled dot product."""
    if layout is None:
        if attention_mask is not None and not any(more.get(name) for name in BEYOND_MASKS):
            return _grouped(query, key, value, attention_mask, scaling), None
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **more
        )
    if more.get("dropout"):
        raise NotImplementedError("dropout would tear sampler and learner apart; use eval()")
    for name in ("sliding_window", "softcap", "position_bias", "s_aux"):
        if more.get(name) is not None:
            raise NotImplementedError(f"its attention has {name}")
    # With autocast queries and keys leave RoPE in float32.
    query, key = query.to(value.dtype), key.to(value.dtype)
    return layout.attend(query, key, value, scaling), None


def _grouped(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None
) -> Tensor:
    """Computes SDPA [rows, width, heads, dim] in which the query heads that share a key head become
    rows of one: repeated keys, as transformers has them, take three times as long on CPUs."""
    rows, heads, width, dim = query.shape
    shared = key.shape[1]
    seen = functional.scaled_dot_product_attention(
        query.reshape(rows, shared, -1, dim),
        key,
        value,
        attn_mask=mask.expand(-1, -1, width, -1).repeat(1, 1, heads // shared, 1),
        scale=scaling,
    )
    # Values may be narrower than keys, and what is seen is as wide as they are. Not `view`: kernels
    # of GPUs lay it out with positions before heads.
    return seen.reshape(rows, heads, width, -1).transpose(1, 2)


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
