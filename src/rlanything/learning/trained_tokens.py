"""Which positions predict a token that trains, and what that token weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Sample


class Batch(Protocol):
    """Samples that are computed in one forward pass: a `Pack` or `Rows`."""

    @property
    def samples(self) -> tuple[Sample, ...]: ...

    @property
    def paths(self) -> Sequence[np.ndarray]:
        """[samples][prompt + response], the node that each token is computed at."""
        ...

    @property
    def computed_tokens(self) -> int:
        """Nodes, padding included."""
        ...

    def hidden_states(self, model: LanguageModel) -> Tensor:
        """[nodes, hidden]"""
        ...


@dataclass(frozen=True, slots=True)
class TrainedTokens:
    """The response tokens that were really chosen, [targets], and the distributions that they were
    chosen from, [rows]: several may come from one."""

    nodes: Tensor
    """[rows], the node whose hidden state predicts."""
    allowed: list[tuple[int, ...]]
    """[rows], the tokens among which was chosen; empty: all."""
    rows: Tensor
    """[targets], the row that each token was drawn from."""
    tokens: Tensor
    """[targets]"""
    old_logprobs: Tensor
    """[targets]"""
    advantages: Tensor
    """[targets]"""
    weights: Tensor
    """[targets], their share in the mean over samples of means over tokens."""


def trained_tokens(batch: Batch, mean_over: int, device: torch.device) -> TrainedTokens:
    """The targets of a batch whose loss is part of a mean over `mean_over` samples.

    A token that had no alternative was not sampled: it neither counts nor dilutes its sample's
    mean. A sample of such tokens only is 0, and counts."""
    row_of: dict[tuple[int, tuple[int, ...]], int] = {}
    rows, tokens = [], []
    old, advantages, weights = [], [], []
    for sample, path in zip(batch.samples, batch.paths, strict=True):
        completion = sample.completion
        chosen = [i for i, options in enumerate(completion.allowed) if len(options) != 1]
        before = path[len(completion.prompt_ids) - 1 :].tolist()
        for i in chosen:
            rows.append(row_of.setdefault((before[i], completion.allowed[i]), len(row_of)))
            tokens.append(completion.token_ids[i])
            old.append(completion.logprobs[i])
            advantages.append(sample.advantage)
            weights.append(1.0 / (len(chosen) * mean_over))

    def integers(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    def numbers(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    return TrainedTokens(
        nodes=integers([node for node, _ in row_of]),
        allowed=[options for _, options in row_of],
        rows=integers(rows),
        tokens=integers(tokens),
        old_logprobs=numbers(old),
        advantages=numbers(advantages),
        weights=numbers(weights),
    )
