"""A KV cache whose rows have individual lengths and persist between calls.

An agent's next prompt is its last one plus its answer plus the environment's reply, so most of a
prompt is already cached. Rows are matched by their tokens.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

KEPT_ROWS = 256
"""Number of conversations kept at once; more only if one call has more."""


class RaggedCache:
    """Keys and values [rows, heads, capacity, head_dim] per layer, right-padded.

    `update` is called once per layer and forward pass (see `decoder_cache`), and appends each row's
    new tokens at that row's own length.
    """

    def __init__(self) -> None:
        self.tokens: list[list[int]] = []
        """Tokens of each row; `len(tokens[row])` is the row's length."""
        self._places: list[int] = []
        """Storage index of each row."""
        self._conversations: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._rows: slice | Tensor = slice(0, 0)
        self._columns = torch.zeros(1, 1, dtype=torch.long)
        self._targets: tuple[Tensor, Tensor] | None = None
        """Rows and columns that the pass writes to, on the storage's device."""
        self._written = 0
        """Number of columns written since rows were assigned."""

    def assign(self, conversations: Sequence[str], prompts: Sequence[Sequence[int]]) -> list[int]:
        """Returns a row for each prompt, cut to the prefix they share.

        A conversation keeps its row while it is among the latest; a second request of the same
        conversation gets another row. At least one token of a prompt is left to compute, because
        its logits are needed."""
        self._written = 0
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
        """Returns a new row, or the row of the least recently used conversation."""
        if len(self.tokens) < max(needed, KEPT_ROWS):
            self.tokens.append([])
            self._places.append(len(self._places))
            return len(self.tokens) - 1
        return self._conversations.popitem(last=False)[1]

    def copy(self, source: int, target: int, length: int) -> None:
        """Replaces a row's content by the first `length` tokens of another."""
        self.tokens[target] = self.tokens[source][:length]
        one, other = self._places[source], self._places[target]
        for keys, values in self._layers.values():
            for store in (keys, values):
                store[other, :, :length] = store[one, :, :length]

    def bring_together(self, rows: Sequence[int]) -> list[int]:
        """Makes rows adjacent in storage, so that passes over them need no copies. Returns their
        order in storage as indices into `rows`."""
        places = [self._places[row] for row in rows]
        count = len(rows)
        # Find the section of storage that already has most of them.
        taken = np.zeros(len(self._places) + 1, dtype=np.int64)
        taken[1:][places] = 1
        inside = taken.cumsum()
        start = int(np.argmax(inside[count:] - inside[: len(inside) - count]))
        stretch = range(start, start + count)
        outside = [row for row, place in zip(rows, places, strict=True) if place not in stretch]
        wanted = set(rows)
        inhabitants = {place: row for row, place in enumerate(self._places)}
        guests = [inhabitants[place] for place in stretch if inhabitants[place] not in wanted]
        self._swap(outside, guests)
        return sorted(range(count), key=lambda i: self._places[rows[i]])

    def _swap(self, some: Sequence[int], others: Sequence[int]) -> None:
        """Swaps the storage of paired rows."""
        if not some:
            return
        old = [self._places[row] for row in (*some, *others)]
        new = [self._places[row] for row in (*others, *some)]
        # Include continuations, which extend beyond their row's length. Ended ones may still be
        # appended to it, and may be longer than all unfinished ones.
        end = max(self._written, *(len(self.tokens[row]) for row in (*some, *others)))
        for layer, (keys, values) in self._layers.items():
            for store in self._reserve(layer, keys, values, end):
                store[new, :, :end] = store[old, :, :end]
        for row, place in zip((*some, *others), new, strict=True):
            self._places[row] = place

    def begin(self, rows: Sequence[int], width: int) -> tuple[Tensor, Tensor]:
        """Prepares a forward pass of `width` new (possibly padded) tokens on each of `rows`.

        Returns position_ids [rows, width] and a boolean mask [rows, 1, width, keys], True for keys
        that a query sees."""
        lengths = self._select(rows)
        self._place(lengths + torch.arange(width))
        mask = self._keys() <= self._columns[..., None]
        return self._columns, mask[:, None]

    def begin_branches(
        self, rows: Sequence[int], branches: int, drawn: int
    ) -> tuple[Tensor, Tensor]:
        """Prepares the same for one more token on each of `branches` continuations of each row, all
        of which have `drawn` tokens so far. They are interleaved in storage, and each only sees
        itself and the row.

        The row itself does not change; no other kind of pass may come between its continuations'
        passes."""
        lengths = self._select(rows)
        self._place(lengths + drawn * branches + torch.arange(branches))
        behind = self._keys() - lengths[..., None]
        own = behind % branches == torch.arange(branches)[:, None]
        mask = (behind < 0) | (own & (behind <= drawn * branches + branches - 1))
        positions = (lengths + drawn).expand(-1, branches)
        return positions, mask[:, None]

    def _select(self, rows: Sequence[int]) -> Tensor:
        """Selects the rows of the next pass; returns their lengths [rows, 1]."""
        places = [self._places[row] for row in rows]
        adjacent = all(b == a + 1 for a, b in pairwise(places))
        # A slice is a view; an index copies.
        self._rows = slice(places[0], places[-1] + 1) if adjacent else torch.tensor(places)
        return torch.tensor([[len(self.tokens[row])] for row in rows], dtype=torch.long)

    def _place(self, columns: Tensor) -> None:
        """Sets the columns [rows, width] that the next pass writes to."""
        self._columns = columns
        self._targets = None
        self._written = max(self._written, int(columns.max()) + 1)

    def _keys(self) -> Tensor:
        """Returns the columns that the next pass may see."""
        return torch.arange(self.width)

    def update(self, keys: Tensor, values: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Stores new keys and values [rows, heads, width, head_dim]; returns all of them so far."""
        # With autocast, RoPE returns keys in float32, and attention would round all of them again
        # for every sampled token.
        keys = keys.to(values.dtype)
        end = self.width
        store_k, store_v = self._reserve(layer_idx, keys, values, end)
        if self._targets is None:
            # Moved once per pass: every layer writes to the same places.
            rows = self._rows
            if isinstance(rows, slice):
                rows = torch.arange(rows.start, rows.stop)
            self._targets = rows[:, None].to(keys.device), self._columns.to(keys.device)
        rows, columns = self._targets
        # Indices on dimensions 0 and 2 address [rows, width, heads, head_dim].
        store_k[rows, :, columns] = keys.transpose(1, 2)
        store_v[rows, :, columns] = values.transpose(1, 2)
        chosen = self._rows if isinstance(self._rows, slice) else rows[:, 0]
        return store_k[chosen, :, :end], store_v[chosen, :, :end]

    @property
    def longest(self) -> int:
        """Length of the longest row before the current pass."""
        return int(self._columns[:, 0].max())

    @property
    def width(self) -> int:
        """Number of keys that the current pass may see."""
        return int(self._columns.max()) + 1

    def _reserve(
        self, layer: int, keys: Tensor, values: Tensor, columns: int
    ) -> tuple[Tensor, Tensor]:
        """Returns a layer's storage, grown to all rows and at least `columns`."""
        rows = len(self.tokens)
        old = self._layers.get(layer)
        if old is None:
            columns += 64
        elif old[0].shape[0] >= rows and old[0].shape[2] >= columns:
            return old
        else:
            rows, columns = _grown(old[0].shape[0], rows), _grown(old[0].shape[2], columns)
        # Zeros, because a NaN would poison attention even where it is masked.
        new = tuple(
            like.new_zeros(rows, like.shape[1], columns, like.shape[3]) for like in (keys, values)
        )
        if old is not None:
            for target, source in zip(new, old, strict=True):
                target[: source.shape[0], :, : source.shape[2]] = source
        self._layers[layer] = (new[0], new[1])
        return self._layers[layer]


def _grown(capacity: int, needed: int) -> int:
    """Returns a capacity of at least `needed`; it grows by at least half, so that this is rare."""
    return capacity if capacity >= needed else max(needed, capacity * 3 // 2)


def shared_length(held: Sequence[int], prompt: Sequence[int]) -> int:
    """Returns the length of the common prefix, by bisection over slice comparisons."""
    low, high = 0, min(len(held), len(prompt))
    while low < high:
        middle = (low + high + 1) // 2
        if list(held[low:middle]) == list(prompt[low:middle]):
            low = middle
        else:
            high = middle - 1
    return low
