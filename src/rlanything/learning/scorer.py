"""The log-probs of trained tokens as one forward pass of one module.

Sharded weights are gathered by hooks around `forward`: a decoder and a head that are called apart
fail, and where they share their embeddings have a wrong gradient without a word."""

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
"""Logits that are held at once, 256 MB in float32: beyond it their rows come in chunks, each of
which is computed again in the backward pass. All rows of a large vocabulary can take 47 GB."""


class TokenScorer(nn.Module):
    """A model's decoder and head, as whatever scores tokens calls them."""

    def __init__(self, model: LanguageModel, temperature: float) -> None:
        super().__init__()
        self.network = model.network
        self.model = model
        self._temperature = temperature

    def forward(self, batch: Batch, tokens: TrainedTokens) -> tuple[Tensor, Tensor | None]:
        """Returns the log-probs [tokens] of what was drawn, and the entropy [tokens] of what each
        was drawn from; None in a pass without gradients, where nobody asks."""
        hidden = batch.hidden_states(self.model)
        # Logits only where a token was chosen: memory follows responses, not prompts. (A look-up,
        # because its gradient is summed in a fixed order.)
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
        """Returns both numbers of tokens that were drawn from `rows` of states [rows, hidden]."""
        logprobs = restricted_logprobs(self.model.logits(states), allowed, self._temperature)
        chosen = logprobs.flatten().gather(0, rows * logprobs.shape[1] + ids)
        if not torch.is_grad_enabled():
            return chosen, None
        with torch.no_grad():
            # In place, and 0 where a token was not allowed: this is where an update holds most.
            finite = logprobs.masked_fill(logprobs.isneginf(), 0.0)
            return chosen, -finite.exp().mul_(finite).sum(-1)[rows]
