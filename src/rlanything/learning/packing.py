"""Samples that begin alike share their beginning: every distinct token of a pack is computed once.

A pack is a trie over the token ids of its samples. A token sees its ancestors and itself, and its
position is its depth, so every sample's logits are those it would have alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlanything.records import Sample


@dataclass(slots=True)
class Pack:
    """A trie in the order its nodes were added: parents come before their children."""

    ids: list[int] = field(default_factory=list)
    """[nodes]"""
    parents: list[int] = field(default_factory=list)
    """[nodes], -1 at the roots."""
    samples: list[Sample] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)
    """[samples][prompt + response], the node of every token."""
    _children: dict[tuple[int, int], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def new_nodes(self, tokens: Sequence[int]) -> int:
        """How many nodes adding these tokens would cost."""
        parent = -1
        for depth, token in enumerate(tokens):
            child = self._children.get((parent, token))
            if child is None:
                return len(tokens) - depth
            parent = child
        return 0

    def add(self, sample: Sample) -> None:
        parent, path = -1, []
        for token in (*sample.completion.prompt_ids, *sample.completion.token_ids):
            child = self._children.get((parent, token))
            if child is None:
                child = len(self.ids)
                self._children[parent, token] = child
                self.ids.append(token)
                self.parents.append(parent)
            path.append(child)
            parent = child
        self.samples.append(sample)
        self.paths.append(path)

    def positions(self) -> np.ndarray:
        """[nodes], the depth of each node."""
        depth = np.zeros(len(self), dtype=np.int64)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                depth[node] = depth[parent] + 1
        return depth

    def mask(self) -> np.ndarray:
        """[nodes, nodes], True where the row's token sees the column's: an ancestor or itself."""
        sees = np.zeros((len(self), len(self)), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                sees[node, :node] = sees[parent, :node]
            sees[node, node] = True
        return sees


def pack(samples: Sequence[Sample], max_pack_tokens: int) -> Iterator[Pack]:
    """Cuts samples into packs of at most `max_pack_tokens` distinct tokens.

    Order is kept, so samples that share a beginning should stand together. A sample that is longer
    than the limit gets a pack of its own: none is ever dropped."""
    current = Pack()
    for sample in samples:
        tokens = (*sample.completion.prompt_ids, *sample.completion.token_ids)
        if len(current) and len(current) + current.new_nodes(tokens) > max_pack_tokens:
            yield current
            current = Pack()
        current.add(sample)
    if len(current):
        yield current
