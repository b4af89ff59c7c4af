"""Samples as separate sequences, padded to rows of one length.

Models without prefix sharing train this way; it is also the reference for packs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Sample


@dataclass(frozen=True, slots=True)
class Rows:
    """Sequences one below the other, padded on the right."""

    samples: tuple[Sample, ...]
    ids: np.ndarray
    """[samples, longest], 0 where a sequence has ended."""

    @property
    def computed_tokens(self) -> int:
        return self.ids.size

    @property
    def paths(self) -> tuple[np.ndarray, ...]:
        """Nodes [samples][prompt + response]: a token's index in the concatenated rows."""
        width = self.ids.shape[1]
        return tuple(
            row * width + np.arange(len(sample.completion.tokens))
            for row, sample in enumerate(self.samples)
        )

    def hidden_states(self, model: LanguageModel) -> Tensor:
        """Returns the last layer's states [samples * longest, hidden]."""
        ids = torch.from_numpy(self.ids)
        positions = torch.arange(ids.shape[1]).expand(ids.shape)
        if model.in_grid:
            positions = positions.repeat(3, 1, 1)
            for row, sample in enumerate(self.samples):
                own = model.positions(sample.completion.tokens)
                positions[:, row, : own.shape[1]] = own
        # The causal mask is enough: padding comes last, so no token of a sample sees it.
        return model.hidden_states(ids, positions, None).flatten(0, 1)


def pad(samples: Sequence[Sample], max_tokens: int) -> list[Rows]:
    """Divides samples into batches of similar length, each of at most `max_tokens` with padding.

    Samples stay whole: a longer one gets its own batch."""
    lengths = [len(sample.completion.tokens) for sample in samples]
    return [_rows([samples[i] for i in group]) for group in row_groups(lengths, max_tokens)]


def row_groups(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Returns the indices of the sequences of each batch, the longest first."""
    groups: list[list[int]] = []
    # The longest first: the others of its group are padded to its length.
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= max_tokens:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _rows(samples: Sequence[Sample]) -> Rows:
    tokens = [sample.completion.tokens for sample in samples]
    ids = np.zeros((len(tokens), max(len(sequence) for sequence in tokens)), dtype=np.int64)
    for row, sequence in enumerate(tokens):
        ids[row, : len(sequence)] = sequence
    return Rows(tuple(samples), ids)
