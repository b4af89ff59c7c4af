"""Samples in, new weights out. The policy and the judge learn with the same code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlanything.config import TrainedRole
from rlanything.engines.choices import restricted_logprobs
from rlanything.engines.model import LanguageModel
from rlanything.learning.objective import Objective, token_terms
from rlanything.learning.packing import Pack, pack
from rlanything.records import Sample


class Learner:
    """AdamW on the design's objective. Its state outlives the iteration."""

    def __init__(self, model: LanguageModel, settings: TrainedRole) -> None:
        self._model = model
        self._settings = settings
        self._objective = Objective(settings.clip_range, settings.kl_weight)
        self._optimizer = torch.optim.AdamW(
            [p for p in model.network.parameters() if p.requires_grad],
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
        )

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> dict[str, float]:
        """Trains once on (task id, sample) pairs and returns statistics of the update.

        Minibatches are made of whole tasks, in seeded order. Samples of advantage 0 carry no signal
        and are refused: the caller decides what trains."""
        if any(sample.advantage == 0 for _, sample in samples):
            raise ValueError("a sample of advantage 0 must not reach the learner")
        totals = _Totals()
        self._model.network.train()
        for batch in minibatches(samples, self._settings.updates_per_iteration, seed):
            self._optimizer.zero_grad(set_to_none=True)
            for part in pack(batch, self._settings.max_pack_tokens):
                self._accumulate(part, len(batch), totals)
                if on_samples is not None:
                    on_samples(len(part.samples))
            norm = torch.nn.utils.clip_grad_norm_(
                self._model.network.parameters(), self._settings.max_grad_norm
            )
            self._optimizer.step()
            totals.end_of_update(float(norm))
        self._model.network.eval()
        return totals.statistics()

    def _accumulate(self, part: Pack, batch_size: int, totals: _Totals) -> None:
        """Adds the gradient of a pack's share of the minibatch mean."""
        targets = _targets(part, batch_size)
        hidden = self._model.hidden_states(
            torch.tensor([part.ids]),
            torch.from_numpy(part.positions())[None],
            torch.from_numpy(part.mask())[None, None],
        )
        logits = self._model.logits(hidden[0, targets.nodes])
        logprobs = restricted_logprobs(logits, targets.allowed, self._settings.temperature)
        new = logprobs.gather(-1, targets.tokens[:, None].to(logprobs.device))[:, 0]
        old, advantages, weights = (
            torch.tensor(values, device=new.device)
            for values in (targets.old_logprobs, targets.advantages, targets.weights)
        )
        terms = token_terms(new, old, advantages, self._objective)
        loss = (terms.loss * weights).sum()
        loss.backward()
        with torch.no_grad():
            finite = logprobs.masked_fill(logprobs.isneginf(), 0.0)
            entropy = -(finite.exp() * finite * ~logprobs.isneginf()).sum(-1)
            totals.add(part, loss, terms.ratio, terms.clipped, terms.kl, entropy)

    def state(self) -> dict[str, Any]:
        return self._optimizer.state_dict()

    def load_state(self, path: Path) -> None:
        self._optimizer.load_state_dict(torch.load(path, weights_only=True))


def minibatches(samples: Sequence[tuple[str, Sample]], count: int, seed: int) -> list[list[Sample]]:
    """At most `count` minibatches of about equal size. A task's samples stay together, in order."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for task, sample in samples:
        groups[task].append(sample)
    order = list(groups.values())
    np.random.default_rng(seed).shuffle(order)  # pyright: ignore[reportArgumentType]
    batches: list[list[Sample]] = [[] for _ in range(min(count, len(order)))]
    for group in order:
        min(batches, key=len).extend(group)
    return batches


@dataclass(frozen=True, slots=True)
class _Targets:
    """The response tokens of a pack that were really chosen, all [targets]."""

    nodes: list[int]
    """The node whose logits predict the token."""
    tokens: Tensor
    old_logprobs: list[float]
    advantages: list[float]
    weights: list[float]
    allowed: list[tuple[int, ...]]


def _targets(part: Pack, batch_size: int) -> _Targets:
    """A token that had no alternative was not sampled: it neither counts nor dilutes the mean."""
    nodes, tokens, old, advantages, weights, allowed = [], [], [], [], [], []
    for sample, path in zip(part.samples, part.paths, strict=True):
        completion = sample.completion
        start = len(completion.prompt_ids) - 1
        chosen = [i for i, options in enumerate(completion.allowed) if len(options) != 1]
        for i in chosen:
            nodes.append(path[start + i])
            tokens.append(completion.token_ids[i])
            old.append(completion.logprobs[i])
            advantages.append(sample.advantage)
            weights.append(1.0 / (len(chosen) * batch_size))
            allowed.append(completion.allowed[i])
    return _Targets(
        nodes, torch.tensor(tokens, dtype=torch.long), old, advantages, weights, allowed
    )


@dataclass(slots=True)
class _Totals:
    """Running sums behind the statistics of an update."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    loss: float = 0.0
    samples: int = 0
    tokens: int = 0
    sample_tokens: int = 0
    computed_tokens: int = 0
    ratio: float = 0.0
    max_ratio: float = 0.0
    clipped: int = 0
    kl: float = 0.0
    entropy: float = 0.0

    def add(
        self, part: Pack, loss: Tensor, ratio: Tensor, clipped: Tensor, kl: Tensor, entropy: Tensor
    ) -> None:
        self.loss += loss.item()
        self.samples += len(part.samples)
        self.sample_tokens += sum(len(path) for path in part.paths)
        self.computed_tokens += len(part)
        self.tokens += len(ratio)
        if len(ratio):
            self.ratio += float(ratio.sum())
            self.max_ratio = max(self.max_ratio, float(ratio.max()))
            self.clipped += int(clipped.sum())
            self.kl += float(kl.sum())
            self.entropy += float(entropy.sum())

    def end_of_update(self, norm: float) -> None:
        self.losses.append(self.loss)
        self.norms.append(norm)
        self.loss = 0.0

    def statistics(self) -> dict[str, float]:
        tokens = max(self.tokens, 1)
        updates = max(len(self.losses), 1)
        return {
            "updates": len(self.losses),
            "samples": self.samples,
            "loss": sum(self.losses) / updates,
            "grad_norm": sum(self.norms) / updates,
            "ratio_mean": self.ratio / tokens,
            "ratio_max": self.max_ratio,
            "clip_share": self.clipped / tokens,
            "kl": self.kl / tokens,
            "entropy": self.entropy / tokens,
            "chosen_tokens": self.tokens,
            "sample_tokens": self.sample_tokens,
            "computed_tokens": self.computed_tokens,
        }
