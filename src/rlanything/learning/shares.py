"""Division of an update into passes and among seats: the same on every seat, and known in
advance."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rlanything.config.roles import TrainedRoleConfig
from rlanything.learning.packing import pack
from rlanything.learning.padding import pad
from rlanything.learning.trained_tokens import Batch
from rlanything.records import Sample


@dataclass(frozen=True, slots=True)
class Pass:
    """A forward and backward pass over whole samples."""

    batch: Batch
    mean_over: float
    """Number of samples in its minibatch, over which the loss is averaged. Infinite: a padding pass
    with no weight, which keeps seats in step."""

    @property
    def counts(self) -> bool:
        return self.mean_over < math.inf


Minibatch: TypeAlias = list[Pass]
"""The passes of one optimizer step."""


def arrange(
    samples: Sequence[tuple[str, Sample]], settings: TrainedRoleConfig, seed: int
) -> list[Minibatch]:
    """Returns the work of an update on (task id, sample) pairs.

    Minibatches consist of whole tasks, in seeded order. Samples with advantage 0 carry no signal
    and are refused, as are samples without a prompt: the caller selects what trains."""
    if not all(sample.trains for _, sample in samples):
        raise ValueError("a sample of advantage 0 must not reach the learner")
    if not all(sample.completion.prompt_ids for _, sample in samples):
        raise ValueError("a sample without a prompt has nothing to predict its first token")
    divide = pack if settings.packing == "shared" else pad
    return [
        [Pass(batch, len(part)) for batch in divide(part, settings.max_pack_tokens)]
        for part in minibatches(samples, settings.minibatches, seed)
    ]


def share(work: Sequence[Minibatch], seats: int) -> list[list[Minibatch]]:
    """Returns each seat's part of all minibatches: longest pass first, to the seat with the least
    work; a seat's passes stay in order.

    Every seat has the same number of passes per minibatch, or the others would wait forever: a seat
    with fewer repeats its smallest pass without weight."""
    shares: list[list[Minibatch]] = [[] for _ in range(seats)]
    for minibatch in work:
        sizes = [each.batch.computed_tokens for each in minibatch]
        loads, own = [0] * seats, [list[int]() for _ in range(seats)]
        for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
            seat = loads.index(min(loads))
            loads[seat] += sizes[i]
            own[seat].append(i)
        most = max(map(len, own))
        filler = Pass(minibatch[sizes.index(min(sizes))].batch, math.inf)
        for mine, numbers in zip(shares, own, strict=True):
            passes = [minibatch[i] for i in sorted(numbers)]
            mine.append(passes + [filler] * (most - len(passes)))
    return shares


def minibatches(samples: Sequence[tuple[str, Sample]], count: int, seed: int) -> list[list[Sample]]:
    """Divides (task id, sample) pairs into at most `count` minibatches of about equal size.

    A task's samples stay together, in order; `seed` shuffles the tasks."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for task, sample in samples:
        groups[task].append(sample)
    order = list(groups.values())
    np.random.default_rng(seed).shuffle(order)  # pyright: ignore[reportArgumentType]
    batches: list[list[Sample]] = [[] for _ in range(min(count, len(order)))]
    for group in order:
        min(batches, key=len).extend(group)
    return batches
