"""Supervised learning on packs: the cross-entropy of responses, prompts shared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rlanything.engines.model import LanguageModel
from rlanything.learning.packing import Pack, pack
from rlanything.records import Sample

MAX_LESSON_TOKENS = 1024
LESSONS_PER_UPDATE = 4


@dataclass(frozen=True, slots=True)
class Lesson:
    """A pack of examples in arrays: they number thousands."""

    ids: np.ndarray
    """[nodes]"""
    parents: np.ndarray
    """[nodes]"""
    nodes: np.ndarray
    """[targets], the nodes that predict."""
    tokens: np.ndarray
    """[targets], what they should predict."""

    @classmethod
    def of(cls, part: Pack) -> Lesson:
        pairs = sorted(
            {
                (path[i - 1], part.ids[path[i]], copy)
                for copy, (sample, path) in enumerate(zip(part.samples, part.paths, strict=True))
                for i in range(len(sample.completion.prompt_ids), len(path))
            }
        )
        return cls(
            np.array(part.ids, dtype=np.int32),
            np.array(part.parents, dtype=np.int32),
            np.array([node for node, _, _ in pairs], dtype=np.int32),
            np.array([token for _, token, _ in pairs], dtype=np.int32),
        )


def lessons_of(groups: Iterable[Sequence[Sample]]) -> Iterator[Lesson]:
    """Each group's samples (those of an episode, say) share prefixes; groups are kept apart."""
    for samples in groups:
        for part in pack(samples, MAX_LESSON_TOKENS):
            yield Lesson.of(part)


def pretrain(
    model: LanguageModel,
    lessons: Sequence[Lesson],
    epochs: int,
    learning_rate: float,
    seed: int,
    on_lessons: Callable[[int, float], None] | None = None,
) -> float:
    """AdamW with warm-up and cosine decay; returns the mean loss per token of the last tenth."""
    network = model.network.train()
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    order = np.concatenate(
        [np.random.default_rng([seed, epoch]).permutation(len(lessons)) for epoch in range(epochs)]
    )
    updates = math.ceil(len(order) / LESSONS_PER_UPDATE)
    losses: list[float] = []
    for update in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * _schedule(update / updates)
        batch = [
            lessons[i]
            for i in order[update * LESSONS_PER_UPDATE : (update + 1) * LESSONS_PER_UPDATE]
        ]
        total = sum(len(lesson.tokens) for lesson in batch)
        optimizer.zero_grad(set_to_none=True)
        summed = 0.0
        for lesson in batch:
            loss = _loss(model, lesson)
            (loss / total).backward()
            summed += loss.item()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(summed / total)
        if on_lessons is not None:
            on_lessons(len(batch), losses[-1])
    network.eval()
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail)


def _schedule(progress: float) -> float:
    warmup = 0.03
    if progress < warmup:
        return progress / warmup + 1e-3
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))


def _loss(model: LanguageModel, lesson: Lesson) -> torch.Tensor:
    """Summed cross-entropy of a lesson's targets."""
    linear = bool((lesson.parents == np.arange(len(lesson.ids)) - 1).all())
    part = Pack(lesson.ids.tolist(), lesson.parents.tolist())
    # A lesson without branches is plain causal attention, for which there is a faster kernel.
    mask = None if linear else torch.from_numpy(part.mask())[None, None]
    hidden = model.hidden_states(
        torch.from_numpy(lesson.ids).long()[None], torch.from_numpy(part.positions())[None], mask
    )
    logits = model.logits(hidden[0, torch.from_numpy(lesson.nodes).long()])
    targets = torch.from_numpy(lesson.tokens).long().to(logits.device)
    return torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
