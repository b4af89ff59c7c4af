"""Supervised learning on packs: the cross-entropy of responses, prompts shared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.packing import Pack, pack
from rlanything.nano.descent import descend
from rlanything.records import Sample

MAX_LESSON_TOKENS = 1024
LESSONS_PER_UPDATE = 4


@dataclass(frozen=True, slots=True)
class Lesson:
    """A pack of examples in arrays: they number thousands."""

    ids: np.ndarray
    """[nodes], as in `Pack`"""
    positions: np.ndarray
    """[nodes]"""
    ends: np.ndarray
    """[nodes]"""
    nodes: np.ndarray
    """[targets], the nodes that predict."""
    tokens: np.ndarray
    """[targets], what they should predict."""

    @classmethod
    def of(cls, part: Pack) -> Lesson:
        pairs = [
            (path[i - 1], part.ids[path[i]])
            for sample, path in zip(part.samples, part.paths, strict=True)
            for i in range(len(sample.completion.prompt_ids), len(path))
        ]
        return cls(
            part.ids.astype(np.int32),
            part.positions.astype(np.int32),
            part.ends.astype(np.int32),
            np.array([node for node, _ in pairs], dtype=np.int32),
            np.array([token for _, token in pairs], dtype=np.int32),
        )


def lessons_of(groups: Iterable[Sequence[Sample]]) -> Iterator[Lesson]:
    """Each group's samples (those of an episode, say) share prefixes; groups are kept apart."""
    for samples in groups:
        for part in pack(samples, MAX_LESSON_TOKENS):
            yield Lesson.of(part)


class Renaming:
    """Swaps interchangeable words, so that a model learns to read them rather than to guess.

    A lesson in which every mug is called a vase teaches the same skill. `groups` hold the token ids
    of interchangeable words."""

    def __init__(self, groups: Sequence[Sequence[int]], vocabulary: int) -> None:
        self._groups = [np.array(group) for group in groups]
        self._vocabulary = vocabulary

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """[vocabulary], what each token becomes."""
        names = np.arange(self._vocabulary, dtype=np.int32)
        for group in self._groups:
            names[group] = rng.permutation(group)
        return names


def pretrain(
    model: LanguageModel,
    lessons: Sequence[Lesson],
    epochs: int,
    learning_rate: float,
    seed: int,
    renaming: Renaming,
    on_lessons: Callable[[int], None],
) -> float:
    """Warm-up and cosine decay; returns the mean loss per token of the last tenth."""
    rng = np.random.default_rng(seed)
    batches = [batch for _ in range(epochs) for batch in _batches(lessons, rng)]

    def losses(update: int) -> tuple[torch.Tensor, torch.Tensor]:
        batch = batches[update]
        loss = _loss(model, [lessons[i] for i in batch], [renaming.draw(rng) for _ in batch])
        return loss, loss

    rates = [learning_rate * _schedule(update / len(batches)) for update in range(len(batches))]
    return descend(model.network, rates, losses, lambda update: on_lessons(len(batches[update])))


def _batches(lessons: Sequence[Lesson], rng: np.random.Generator) -> list[np.ndarray]:
    """Indices of lessons, shuffled."""
    order = rng.permutation(len(lessons))
    return np.split(order, range(LESSONS_PER_UPDATE, len(order), LESSONS_PER_UPDATE))


def _schedule(progress: float) -> float:
    warmup = 0.03
    if progress < warmup:
        return progress / warmup + 1e-3
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))


def _loss(
    model: LanguageModel, lessons: Sequence[Lesson], names: Sequence[np.ndarray]
) -> torch.Tensor:
    """Mean cross-entropy of the lessons' targets, with tokens renamed lesson by lesson."""
    # Tries one behind the other are a forest, which is computed like a trie.
    offsets = np.cumsum([0, *(len(lesson.ids) for lesson in lessons)])[:-1]
    hidden = model.trie_hidden_states(
        torch.from_numpy(_joined([n[each.ids] for each, n in zip(lessons, names, strict=True)])),
        torch.from_numpy(_joined([each.positions for each in lessons])),
        _joined([each.ends + start for each, start in zip(lessons, offsets, strict=True)]),
    )
    nodes = _joined([each.nodes + start for each, start in zip(lessons, offsets, strict=True)])
    tokens = _joined([n[each.tokens] for each, n in zip(lessons, names, strict=True)])
    where = torch.from_numpy(nodes).to(hidden.device)
    logits = model.logits(torch.nn.functional.embedding(where, hidden))
    return torch.nn.functional.cross_entropy(logits, torch.from_numpy(tokens).to(hidden.device))


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts).astype(np.int64)
