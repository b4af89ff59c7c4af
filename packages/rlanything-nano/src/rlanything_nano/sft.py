"""Supervised fine-tuning (SFT) on packs: the cross-entropy of responses with shared prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.packing import Pack, pack
from rlanything.records import Sample
from rlanything_nano.updates import decaying_rates, run_updates

PACK_TOKENS = 1024
"""Distinct tokens of a pack, unless a plan says otherwise."""
BATCHES_PER_UPDATE = 4


@dataclass(frozen=True, slots=True)
class SFTBatch:
    """A pack of samples as arrays: thousands of them must fit into memory."""

    ids: np.ndarray
    """[nodes], as in `Pack`."""
    positions: np.ndarray
    """[nodes], or [3, nodes] in a model whose positions follow the grid of an image."""
    ends: np.ndarray
    """[nodes]"""
    nodes: np.ndarray
    """[targets], the nodes whose hidden states predict."""
    tokens: np.ndarray
    """[targets], the tokens to predict."""

    @classmethod
    def from_pack(cls, part: Pack, model: LanguageModel) -> SFTBatch:
        pairs = [
            (path[i - 1], part.ids[path[i]])
            for sample, path in zip(part.samples, part.paths, strict=True)
            for i in range(len(sample.completion.prompt_ids), len(path))
        ]
        return cls(
            part.ids,
            part.places(model).numpy().astype(np.int32),
            part.ends.astype(np.int32),
            np.array([node for node, _ in pairs], dtype=np.int32),
            np.array([token for _, token in pairs], dtype=np.int32),
        )


def make_batches(
    groups: Iterable[Sequence[Sample]], model: LanguageModel, pack_tokens: int = PACK_TOKENS
) -> Iterator[SFTBatch]:
    """Yields batches in which the samples of a group, such as an episode, share prefixes; groups
    stay separate."""
    for samples in groups:
        for part in pack(samples, pack_tokens):
            yield SFTBatch.from_pack(part, model)


class Renaming:
    """Swaps interchangeable words, so that a model learns to read them instead of guessing.

    A batch in which every mug is called a vase teaches the same skill. `groups`: token ids of
    interchangeable words."""

    def __init__(self, groups: Sequence[Sequence[int]], vocabulary: int) -> None:
        self._groups = [np.array(group, dtype=np.int32) for group in groups]
        self._vocabulary = vocabulary

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Returns the new token of every token [vocabulary]."""
        names = np.arange(self._vocabulary, dtype=np.int32)
        for group in self._groups:
            names[group] = rng.permutation(group)
        return names


def train_epochs(
    model: LanguageModel,
    batches: Sequence[SFTBatch],
    epochs: int,
    learning_rate: float,
    seed: int,
    renaming: Renaming,
    on_batches: Callable[[int], None],
    rehearsed: Callable[[], Sequence[SFTBatch]] | None = None,
) -> float:
    """Trains with warm-up and cosine decay. Returns the mean loss per token, in nats, over the last
    tenth of the updates. `on_batches` is called with the number of batches of every update.
    `rehearsed` returns additional batches for each update; their mean loss has the same weight but
    is not returned."""
    rng = np.random.default_rng(seed)
    chosen = [indices for _ in range(epochs) for indices in _shuffled(len(batches), rng)]

    def losses(update: int) -> tuple[torch.Tensor, torch.Tensor]:
        indices = chosen[update]
        loss = _loss(model, [batches[i] for i in indices], [renaming.draw(rng) for _ in indices])
        if rehearsed is None:
            return loss, loss
        more = rehearsed()
        unchanged = np.arange(len(model.tokenizer), dtype=np.int32)
        return loss + _loss(model, more, [unchanged] * len(more)), loss.detach()

    rates = decaying_rates(learning_rate, len(chosen))
    return run_updates(model.network, rates, losses, lambda update: on_batches(len(chosen[update])))


def _shuffled(count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Returns the indices of an epoch's batches, shuffled, update by update."""
    order = rng.permutation(count)
    return np.split(order, range(BATCHES_PER_UPDATE, len(order), BATCHES_PER_UPDATE))


def _loss(
    model: LanguageModel, batches: Sequence[SFTBatch], names: Sequence[np.ndarray]
) -> torch.Tensor:
    """Returns the mean cross-entropy (scalar) of the batches' targets; `names`
    [batches][vocabulary] renames the tokens of each batch."""
    # Concatenated tries form a forest, which is computed like a trie.
    offsets = np.cumsum([0, *(len(batch.ids) for batch in batches)])[:-1]
    hidden = model.trie_hidden_states(
        torch.from_numpy(
            _joined([_renamed(batch.ids, n) for batch, n in zip(batches, names, strict=True)])
        ),
        torch.from_numpy(_joined([batch.positions for batch in batches])),
        _joined([batch.ends + start for batch, start in zip(batches, offsets, strict=True)]),
    )
    nodes = _joined([batch.nodes + start for batch, start in zip(batches, offsets, strict=True)])
    tokens = _joined([n[batch.tokens] for batch, n in zip(batches, names, strict=True)])
    where = torch.from_numpy(nodes).to(hidden.device)
    logits = model.logits(torch.nn.functional.embedding(where, hidden))
    return torch.nn.functional.cross_entropy(logits, torch.from_numpy(tokens).to(hidden.device))


def _renamed(ids: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Returns the ids [nodes] after renaming by [vocabulary]; image tokens keep theirs."""
    return np.where(ids < 0, ids, names[np.maximum(ids, 0)])


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts, axis=-1).astype(np.int64)
