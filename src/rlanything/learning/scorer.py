"""The log-probs of trained tokens as one forward pass of one module.

Sharded weights are gathered by hooks around `forward`: calling decoder and head separately fails,
or silently gives a wrong gradient if they share embeddings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from rlanything.engines.hf.choices import restricted_logprobs
from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.trained_tokens import Batch, TrainedTokens

MAX_LOGITS = 2**26
"""Logits in memory at once, 256 MB in float32: more rows are split into chunks, each recomputed in
the backward pass. All rows of a large vocabulary can take 47 GB."""


class TokenScorer(nn.Module):
    """A model's decoder and head as one module."""

    def __init__(self, model: LanguageModel, temperature: float) -> None:
        super().__init__()
        self.network = model.network
        self.model = model
        self._temperature = temperature

    def forward(self, batch: Batch, tokens: TrainedTokens) -> tuple[Tensor, Tensor | None]:
        """Returns the log-probs [tokens] of the sampled tokens and the entropy [tokens] of their
        distributions; None for the entropy in a pass without gradients."""
        hidden = batch.hidden_states(self.model)
        # Logits only where a token was sampled: memory scales with responses, not prompts. (An
        # embedding lookup, because its gradient is summed in a fixed order.)
        states = functional.embedding(tokens.nodes, hidden)
        size = max(1, MAX_LOGITS // self.network.config.get_text_config(decoder=True).vocab_size)
        if len(states) <= size:
            return self._score(states, tokens.allowed, tokens.rows, tokens.ids)
        parts: list[tuple[Tensor, Tensor | None]] = []
        places: list[Tensor] = []
        for start in range(0, len(states), size):
            end = start + size
            here = ((tokens.rows >= start) & (tokens.rows < end)).nonzero()[:, 0]
            given: Any = states[start:end], tokens.allowed[start:end]
            # No random numbers: dropout is off.
            part = checkpoint(
                self._score,
                *given,
                tokens.rows[here] - start,
                tokens.ids[here],
                use_reentrant=False,
                preserve_rng_state=False,
            )
            parts.append(part)  # pyright: ignore[reportArgumentType]
            places.append(here)
        back = torch.cat(places).argsort()
        entropies = [entropy for _, entropy in parts if entropy is not None]
        logprobs = torch.cat([logprobs for logprobs, _ in parts])[back]
        return logprobs, torch.cat(entropies)[back] if entropies else None

    def _score(
        self, states: Tensor, allowed: list[tuple[int, ...]], rows: Tensor, ids: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Returns log-probs and entropies of tokens sampled from `rows` of states [rows,
        hidden]."""
        logprobs = restricted_logprobs(self.model.logits(states), allowed, self._temperature)
        chosen = logprobs.flatten().gather(0, rows * logprobs.shape[1] + ids)
        if not torch.is_grad_enabled():
            return chosen, None
        with torch.no_grad():
            # In place, and 0 for disallowed tokens: this is the update's memory peak.
            finite = logprobs.masked_fill(logprobs.isneginf(), 0.0)
            return chosen, -finite.exp().mul_(finite).sum(-1)[rows]
