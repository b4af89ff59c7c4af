"""A key/value cache whose rows have their own lengths and survive from one call to the next.

An agent's next prompt is its last one plus its answer plus what the environment said, so most of a
prompt is already here. Rows are found again by the tokens they hold.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

KEPT_ROWS = 256
"""Conversations remembered at once; more only if one call has more."""


class RaggedCache:
    """Keys and values [rows, heads, capacity, head_dim] per layer, right-padded.

    Quacks like a transformers `Cache` as far as a decoder's attention needs it: `update` is called
    once per layer and forward pass, and writes each row's new tokens behind that row's own length.
    """

    def __init__(self) -> None:
        self.tokens: list[list[int]] = []
        """The tokens each row holds; `len(tokens[row])` is the row's length."""
        self._conversations: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._rows: slice | Tensor = slice(0, 0)
        self._lengths = torch.zeros(0, dtype=torch.long)
        self._width = 0

    def assign(self, conversations: Sequence[str], prompts: Sequence[Sequence[int]]) -> list[int]:
        """A row for each prompt, cut to the tokens they share.

        A conversation keeps its row while it is among the latest; where it is named twice at once,
        the second has a row of its own. At least one token of a prompt is left to compute, because
        its logits are needed."""
        rows: list[int] = []
        seen: Counter[str] = Counter()
        for conversation, prompt in zip(conversations, prompts, strict=True):
            name = (conversation, seen[conversation])
            seen[conversation] += 1
            if name not in self._conversations:
                self._conversations[name] = self._free_row(len(conversations))
            self._conversations.move_to_end(name)
            row = self._conversations[name]
            held = self.tokens[row]
            del held[min(shared_length(held, prompt), len(prompt) - 1) :]
            rows.append(row)
        return rows

    def _free_row(self, needed: int) -> int:
        """A new row, or that of the conversation that was silent longest."""
        if len(self.tokens) < max(needed, KEPT_ROWS):
            self.tokens.append([])
            return len(self.tokens) - 1
        return self._conversations.popitem(last=False)[1]

    def copy(self, source: int, target: int, length: int) -> None:
        """Makes a row begin with the first `length` tokens of another, and end there."""
        self.tokens[target] = self.tokens[source][:length]
        for keys, values in self._layers.values():
            for store in (keys, values):
                store[target, :, :length] = store[source, :, :length]

    def begin(self, rows: Sequence[int], width: int) -> tuple[Tensor, Tensor]:
        """Prepares a forward pass of `width` new (possibly padded) tokens on each of `rows`.

        Returns position_ids [rows, width] and a boolean mask [rows, 1, width, keys], True where a
        query may look."""
        neighbours = all(b == a + 1 for a, b in pairwise(rows))
        # A slice is a view; an index copies what it selects.
        self._rows = slice(rows[0], rows[-1] + 1) if neighbours else torch.tensor(rows)
        self._lengths = torch.tensor([len(self.tokens[row]) for row in rows], dtype=torch.long)
        self._width = width
        positions = self._lengths[:, None] + torch.arange(width)
        keys = int(positions.max()) + 1
        mask = torch.arange(keys) <= positions[..., None]
        return positions, mask[:, None]

    def update(self, keys: Tensor, values: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Stores new keys and values [rows, heads, width, head_dim]; returns all of them so far."""
        end = int(self._lengths.max()) + self._width
        store_k, store_v = self._reserve(layer_idx, keys, values, end)
        rows = self._rows
        if isinstance(rows, slice):
            rows = torch.arange(rows.start, rows.stop)
        columns = self._lengths[:, None] + torch.arange(self._width)
        # Indices on dimensions 0 and 2 address [rows, width, heads, head_dim].
        store_k[rows[:, None], :, columns] = keys.transpose(1, 2)
        store_v[rows[:, None], :, columns] = values.transpose(1, 2)
        return store_k[self._rows, :, :end], store_v[self._rows, :, :end]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Decoders ask this to number tokens where position_ids are absent; ours never are."""
        return int(self._lengths.max()) if len(self._lengths) else 0

    def _reserve(
        self, layer: int, keys: Tensor, values: Tensor, columns: int
    ) -> tuple[Tensor, Tensor]:
        """Storage of a layer that holds every row and at least `columns`.

        Keys and values may differ in type: with autocast only values leave a matrix product."""
        rows = len(self.tokens)
        old = self._layers.get(layer)
        if old is None:
            columns += 64
        elif old[0].shape[0] >= rows and old[0].shape[2] >= columns:
            return old
        else:
            rows, columns = _grown(old[0].shape[0], rows), _grown(old[0].shape[2], columns)
        # Zeros, not garbage: a masked NaN would still poison the attention it is masked from.
        new = tuple(
            like.new_zeros(rows, like.shape[1], columns, like.shape[3]) for like in (keys, values)
        )
        if old is not None:
            for target, source in zip(new, old, strict=True):
                target[: source.shape[0], :, : source.shape[2]] = source
        self._layers[layer] = (new[0], new[1])
        return self._layers[layer]


def _grown(capacity: int, needed: int) -> int:
    """By half at least where it is too small, so that growing is rare."""
    return capacity if capacity >= needed else max(needed, capacity * 3 // 2)


def shared_length(held: Sequence[int], prompt: Sequence[int]) -> int:
    """How many tokens two sequences share from their start, by bisection over slice comparisons."""
    low, high = 0, min(len(held), len(prompt))
    while low < high:
        middle = (low + high + 1) // 2
        if list(held[low:middle]) == list(prompt[low:middle]):
            low = middle
        else:
            high = middle - 1
    return low
