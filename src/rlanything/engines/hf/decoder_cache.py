"""The `RaggedCache` as transformers' decoders see one: all that is known here of their cache
interface, which moves between releases."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

from torch import Tensor, nn
from transformers import Cache

from rlanything.engines.hf.cache import RaggedCache

ARGUMENTS = ("cache", "past_key_values")
"""Names under which decoders take a cache: the second until transformers 5.23, the first since."""


class DecoderCache(Cache):
    """A transformers `Cache` without layers of its own: what a decoder stores goes to `store`."""

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

        Releases differ in what else they pass (`cache_kwargs`, `kwargs`); full attention, the only
        kind that shares prefixes, needs none of it."""
        return self._store.update(key_states, value_states, layer_idx)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns the longest row's length, from which decoders would number tokens without
        position ids; ours always have them."""
        return self._store.longest

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> tuple[int, int]:
        """Returns number and offset of the keys that a mask would cover; ours is given."""
        return self._store.width, 0


def cache_arguments(decoder: nn.Module, store: RaggedCache | None) -> dict[str, Any]:
    """Returns the arguments that make a decoder go on from a cache, or without one."""
    if store is None:
        return {"use_cache": False}
    return {_argument(type(decoder)): DecoderCache(store), "use_cache": True}


@lru_cache
def _argument(decoder: type[nn.Module]) -> str:
    taken = inspect.signature(decoder.forward).parameters
    return next((name for name in ARGUMENTS if name in taken), ARGUMENTS[-1])
