"""A partial completion and the sampling of its next token, for all embedded engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from rlanything.engines.base import DivergedError, Request, Sampling
from rlanything.engines.hf.choices import ChoiceWalker, restricted_logprobs
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Completion


@dataclass(slots=True)
class PartialCompletion:
    """One sample of a request during generation."""

    request: Request
    uniforms: np.ndarray
    """Random numbers [max_tokens] in [0, 1), one per token."""
    walker: ChoiceWalker | None
    stop: frozenset[int]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    allowed: list[tuple[int, ...]] = field(default_factory=list)
    stopped: bool = False
    computed: int = 0
    """Number of tokens whose keys and values are in the engine's cache."""

    @classmethod
    def begin(
        cls, request: Request, seed: int, sampling: Sampling, stop_ids: Sequence[int]
    ) -> PartialCompletion:
        # One uniform number per token, from the sample's own seed, so that a sample depends neither
        # on its batch nor on the engine.
        uniforms = np.random.default_rng(seed).random(sampling.max_tokens)
        walker = ChoiceWalker(request.choices) if request.choices else None
        partial = cls(request, uniforms, walker, frozenset(stop_ids))
        partial._take_forced_end()
        return partial

    @property
    def over(self) -> bool:
        return self.stopped or len(self.token_ids) >= len(self.uniforms)

    def next_allowed(self) -> tuple[int, ...]:
        """Token ids that may come next; empty: the whole vocabulary."""
        return self.walker.allowed() if self.walker else ()

    def next_uniform(self) -> float:
        """Returns the next uniform; the last one again for an ended sample, which may still be in
        the batch."""
        return float(self.uniforms[min(len(self.token_ids), len(self.uniforms) - 1)])

    def next_input(self) -> int:
        """Returns the next token to compute; the last one again for an ended sample."""
        token = self.token_ids[min(self.computed, len(self.token_ids) - 1)]
        self.computed = min(self.computed + 1, len(self.token_ids))
        return token

    def take(self, token: int, logprob: float, allowed: tuple[int, ...]) -> None:
        """Appends a token, and all others that are forced to follow up to the end."""
        self._append(token, logprob, allowed)
        self._take_forced_end()

    def _take_forced_end(self) -> None:
        if self.walker is None or self.over:
            return
        end: list[int] = []
        room = len(self.uniforms) - len(self.token_ids)
        for token in islice(self.walker.forced(), room):
            end.append(token)
            if token in self.stop:
                break
        if end and (len(end) == room or end[-1] in self.stop):
            for token in end:
                # Without an alternative the probability is 1.
                self._append(token, 0.0, (token,))

    def _append(self, token: int, logprob: float, allowed: tuple[int, ...]) -> None:
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        self.allowed.append(allowed)
        if token in self.stop:
            self.stopped = True
        elif self.walker is not None:
            self.walker.advance(token)

    def completion(self, model: LanguageModel) -> Completion:
        return Completion(
            prompt_ids=self.request.prompt_ids,
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            allowed=tuple(self.allowed),
            stop_reason="stop" if self.stopped else "length",
            text=model.decode(self.token_ids[:-1] if self.stopped else self.token_ids),
        )


def draw(
    logits: Tensor,
    allowed: Sequence[tuple[int, ...]],
    uniforms: Sequence[float],
    sampling: Sampling,
) -> tuple[list[int], list[float]]:
    """Samples one token per row of logits [rows, vocab] by inverting the cumulative distribution;
    returns tokens and log-probs. Raises `DivergedError` for NaN."""
    logprobs = restricted_logprobs(logits, allowed, sampling.temperature or 1.0)
    if sampling.temperature == 0:
        tokens = logprobs.argmax(-1)
    else:
        cumulative = logprobs.double().exp().cumsum(-1)
        if not cumulative[:, -1].isfinite().all():
            raise DivergedError
        # Scale by the total, so that rounding cannot select a token after the last possible one.
        drawn = torch.tensor(uniforms, dtype=torch.double, device=cumulative.device)
        target = drawn[:, None] * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, target, right=True)[:, 0]
    picked = logprobs.gather(-1, tokens[:, None])[:, 0]
    if picked.isnan().any():
        raise DivergedError
    return tokens.tolist(), picked.tolist()
