"""Prefix sharing: every distinct token of a pack of samples is computed once.

A pack is a trie over the token ids of its samples, laid out depth first. A token sees its ancestors
and itself, and its position is its depth, so every sample's logits equal those of the sample alone.
(Positions on the grid of an image also depend on the node's ancestors only.)

Sorted samples are the trie's leaves in depth-first order: a sample adds the tokens after its common
prefix with the previous sample. A pack is therefore a range of the sorted samples, and the prefix
shared across a boundary between packs is computed twice."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from rlanything.engines.hf.cache import shared_length
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Sample


@dataclass(frozen=True, slots=True)
class Pack:
    """The nodes of a trie, depth first: an ancestor comes before its descendants, which are
    contiguous."""

    samples: tuple[Sample, ...]
    paths: tuple[np.ndarray, ...]
    """[samples][prompt + response], the node of every token."""
    ids: np.ndarray
    """[nodes], the token of each node."""
    positions: np.ndarray
    """[nodes], the depth of each node, 0 at the roots."""
    ends: np.ndarray
    """[nodes], one past the last descendant: node q sees node k if k <= q < ends[k]."""

    @property
    def computed_tokens(self) -> int:
        return len(self.ids)

    def places(self, model: LanguageModel) -> Tensor:
        """Returns the model's positions of the nodes: depths [nodes], or [3, nodes] if positions
        follow the grid of an image."""
        places = torch.from_numpy(self.positions)
        if model.in_grid:
            places = places.repeat(3, 1)
            for path in self.paths:
                places[:, path] = model.positions(self.ids[path])
        return places

    def hidden_states(self, model: LanguageModel) -> Tensor:
        """Returns the last layer's states [nodes, hidden]."""
        ids = torch.from_numpy(self.ids)
        return model.trie_hidden_states(ids, self.places(model), self.ends)


def pack(samples: Sequence[Sample], max_pack_tokens: int) -> list[Pack]:
    """Divides samples into packs of at most `max_pack_tokens` distinct tokens.

    Cuts the trie between leaves so that the fewest tokens are computed twice, then with the fewest
    packs. Samples stay whole and none is dropped: one longer than the limit gets its own pack, with
    others that add at most a quarter of the limit."""
    tokens = [np.array(sample.completion.tokens, dtype=np.int64) for sample in samples]
    # Big-endian bytes sort like their numbers, and faster. In reverse, so that prefixes of a sample
    # come after it and add nothing.
    order = sorted(
        range(len(samples)), key=lambda i: tokens[i].astype(">i8").tobytes(), reverse=True
    )
    samples, tokens = [samples[i] for i in order], [tokens[i] for i in order]
    shared = [0] * min(1, len(tokens))
    shared += [
        shared_length(before.completion.tokens, after.completion.tokens)
        for before, after in pairwise(samples)
    ]
    bounds = cut([len(sequence) for sequence in tokens], shared, max_pack_tokens)
    return [
        _pack(samples[start:end], tokens[start:end], [0, *shared[start + 1 : end]])
        for start, end in pairwise(bounds)
    ]


def cut(lengths: Sequence[int], shared: Sequence[int], limit: int) -> list[int]:
    """Returns the start index of each pack of sorted samples, and the number of samples last.

    Sample i has `lengths[i]` tokens, of which the first `shared[i]` are shared with the previous
    sample; a pack has at most `limit` distinct tokens.

    Dynamic programming: the least cost of samples [0, end) is that of [0, start) plus `shared` at
    the start of its last pack. The starts that can still reach `end` are a sliding window, so its
    minimum is kept in a monotone queue: linear time."""
    count = len(lengths)
    added = np.cumsum([0, *(n - s for n, s in zip(lengths, shared, strict=True))]).tolist()

    def fits(start: int, end: int) -> bool:
        nodes = lengths[start] + added[end] - added[start + 1]
        longest = lengths[start]
        return nodes <= (limit if longest <= limit else longest + limit // 4)

    # Best cost of the samples before each index (tokens computed twice, packs), and the start of
    # the last pack.
    least, begins = [(0, 0)], [0]
    window: deque[tuple[tuple[int, int], int]] = deque()
    for end in range(1, count + 1):
        start = end - 1
        value = (least[start][0] + shared[start], least[start][1] + 1)
        while window and window[-1][0] > value:
            window.pop()
        window.append((value, start))
        while not fits(window[0][1], end):
            window.popleft()
        least.append(window[0][0])
        begins.append(window[0][1])
    cuts = [count]
    while cuts[-1] > 0:
        cuts.append(begins[cuts[-1]])
    return cuts[::-1]


def _pack(samples: Sequence[Sample], tokens: Sequence[np.ndarray], shared: Sequence[int]) -> Pack:
    """Builds the trie of sorted samples; each shares its first `shared` tokens with the last."""
    new = [len(sequence) - common for sequence, common in zip(tokens, shared, strict=True)]
    starts = np.cumsum([0, *new])
    size = int(starts[-1])
    ends = np.full(size, size)
    paths: list[np.ndarray] = []
    path = np.zeros(0, dtype=np.int64)
    for start, count, common in zip(starts.tolist(), new, shared, strict=False):
        ends[path[common:]] = start
        path = np.concatenate([path[:common], np.arange(start, start + count)])
        paths.append(path)
    return Pack(
        samples=tuple(samples),
        paths=tuple(paths),
        ids=np.concatenate([t[n:] for t, n in zip(tokens, shared, strict=True)]),
        positions=np.concatenate(
            [np.arange(n, len(t)) for t, n in zip(tokens, shared, strict=True)]
        ),
        ends=ends,
    )
