"""The trained tokens of a batch: position of their prediction, and weight."""

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
    """Whole samples computed in one forward pass: a `Pack` or `Rows`."""

    @property
    def samples(self) -> tuple[Sample, ...]: ...

    @property
    def paths(self) -> Sequence[np.ndarray]:
        """Nodes [samples][prompt + response] at which the tokens are computed."""
        ...

    @property
    def computed_tokens(self) -> int:
        """Number of nodes, padding included."""
        ...

    def hidden_states(self, model: LanguageModel) -> Tensor:
        """Returns the last layer's states [nodes, hidden]."""
        ...


@dataclass(frozen=True, slots=True)
class TrainedTokens:
    """The sampled response tokens, [tokens], and the distributions they were sampled from, [rows];
    several tokens may share a distribution."""

    nodes: Tensor
    """[rows], the node whose hidden state predicts the token."""
    allowed: list[tuple[int, ...]]
    """[rows], the allowed token ids; empty: all."""
    rows: Tensor
    """[tokens], the row that each token was sampled from."""
    ids: Tensor
    """[tokens], the sampled token ids."""
    samples: Tensor
    """[tokens], the number of the token's sample in the batch."""
    old_logprobs: Tensor
    """[tokens], the sampler's log-probs."""
    advantages: Tensor
    """[tokens]"""
    weights: Tensor
    """[tokens], weights in the mean over samples of means over tokens."""


def trained_tokens(batch: Batch, mean_over: float, device: torch.device) -> TrainedTokens:
    """Returns the trained tokens of a batch on `device`; its loss is part of a mean over
    `mean_over` samples (infinite: weight 0).

    A token without an alternative was not sampled and is left out of its sample's mean. A sample
    with only such tokens has loss 0 and counts."""
    row_of: dict[tuple[int, tuple[int, ...]], int] = {}
    rows, ids, samples = [], [], []
    old, advantages, weights = [], [], []
    for number, (sample, path) in enumerate(zip(batch.samples, batch.paths, strict=True)):
        completion, own = sample.completion, sample.advantage
        chosen = [i for i, options in enumerate(completion.allowed) if len(options) != 1]
        before = path[len(completion.prompt_ids) - 1 :].tolist()
        for i in chosen:
            rows.append(row_of.setdefault((before[i], completion.allowed[i]), len(row_of)))
            ids.append(completion.token_ids[i])
            samples.append(number)
            old.append(completion.logprobs[i])
            advantages.append(own[i] if isinstance(own, tuple) else own)
            weights.append(1.0 / (len(chosen) * mean_over))

    def integers(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    def numbers(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    return TrainedTokens(
        nodes=integers([node for node, _ in row_of]),
        allowed=[options for _, options in row_of],
        rows=integers(rows),
        ids=integers(ids),
        samples=integers(samples),
        old_logprobs=numbers(old),
        advantages=numbers(advantages),
        weights=numbers(weights),
    )
