"""Adapts `RaggedCache` to transformers' cache interface, which changes between releases."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

from torch import Tensor, nn
from transformers import Cache

from rlanything.engines.hf.cache import RaggedCache

ARGUMENTS = ("cache", "past_key_values")
"""A decoder's argument for a cache: the second until transformers 5.23, the first since."""


class DecoderCache(Cache):
    """A transformers `Cache` that forwards everything to a `RaggedCache`."""

    def __init__(self, store: RaggedCache) -> None:
        super().__init__(layers=[])
        self._store = store

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *_arguments: Any,
        **_named: Any,
    ) -> tuple[Tensor, Tensor]:
        """Stores new keys and values [rows, heads, width, head_dim]; returns all of them so far.

        Releases pass different further arguments (`cache_kwargs`, `kwargs`); full attention, the
        only kind with prefix sharing, needs none of them."""
        return self._store.update(key_states, value_states, layer_idx)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns the longest row's length. Decoders would number tokens from it, but always get
        position ids here."""
        return self._store.longest

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> tuple[int, int]:
        """Returns the number and offset of the keys that a default mask would cover."""
        return self._store.width, 0


def cache_arguments(decoder: nn.Module, store: RaggedCache | None) -> dict[str, Any]:
    """Returns a decoder's arguments for a cache; None: it uses none."""
    if store is None:
        return {"use_cache": False}
    return {_argument(type(decoder)): DecoderCache(store), "use_cache": True}


@lru_cache
def _argument(decoder: type[nn.Module]) -> str:
    taken = inspect.signature(decoder.forward).parameters
    return next((name for name in ARGUMENTS if name in taken), ARGUMENTS[-1])
