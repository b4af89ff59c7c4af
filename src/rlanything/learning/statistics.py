"""The statistics of an update, under the names of docs/metrics.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from torch import Tensor

from rlanything.algorithm.losses import LossOutputs
from rlanything.learning.base import Statistics
from rlanything.learning.sharding import SeatGroup
from rlanything.learning.trained_tokens import Batch

ALIKE = (0.9, 1.1)
"""Range of the ratio between two computations of one probability that counts as rounding."""


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


@dataclass(slots=True)
class Mismatch:
    """The mismatch between the sampler's log-probs and the learner's with the same weights. Kernels
    and number formats may differ; the weights must not."""

    tokens: int = 0
    difference: float = 0.0
    largest: float = 0.0
    outside: int = 0
    kl: float = 0.0

    def add(self, learner: Tensor, sampler: Tensor) -> None:
        """Adds tokens with their learner and sampler log-probs, each [tokens]."""
        log_ratio = learner.double() - sampler.double()
        # NaN tokens must not spoil the others; an update that has them is skipped.
        log_ratio = log_ratio[~log_ratio.isnan()]
        if not len(log_ratio):
            return
        ratio = log_ratio.exp()
        self.tokens += len(ratio)
        self.difference += float(log_ratio.abs().sum())
        self.largest = max(self.largest, float(log_ratio.abs().max()))
        self.outside += int(((ratio < ALIKE[0]) | (ratio > ALIKE[1])).sum())
        # k3 again: the sampler drew the tokens, so this is its divergence from the learner.
        self.kl += float((log_ratio.expm1() - log_ratio).sum())

    def statistics(self) -> Statistics:
        return {
            "mismatch_mean": _mean(self.difference, self.tokens),
            "mismatch_max": self.largest if self.tokens else None,
            "mismatch_outside": _mean(self.outside, self.tokens),
            "mismatch_kl": _mean(self.kl, self.tokens),
        }


@dataclass(slots=True)
class Totals:
    """Running sums behind the statistics of an update."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    skipped: int = 0
    loss: float = 0.0
    samples: int = 0
    tokens: int = 0
    sample_tokens: int = 0
    computed_tokens: int = 0
    ratio: float = 0.0
    max_ratio: float = 0.0
    clipped: int = 0
    kl: float = 0.0
    reference_kl: float | None = None
    """Sum of the reference KL; None without a reference model."""
    entropy: float = 0.0
    mismatch: Mismatch = field(default_factory=Mismatch)

    def add(self, batch: Batch, loss: Tensor, outputs: LossOutputs, entropy: Tensor) -> None:
        """Adds a forward pass; `entropy` [tokens] is that of the sampled distributions."""
        self.loss += loss.item()
        self.samples += len(batch.samples)
        self.sample_tokens += sum(len(path) for path in batch.paths)
        self.computed_tokens += batch.computed_tokens
        if not isfinite(self.loss):
            # The update will be skipped, and its ratios would turn all means into NaN.
            return
        self.tokens += len(outputs.ratio)
        if len(outputs.ratio):
            self.ratio += float(outputs.ratio.sum())
            self.max_ratio = max(self.max_ratio, float(outputs.ratio.max()))
            self.clipped += int(outputs.clipped.sum())
            self.kl += float(outputs.kl.sum())
            if outputs.reference_kl is not None:
                self.reference_kl = (self.reference_kl or 0.0) + float(outputs.reference_kl.sum())
            self.entropy += float(entropy.sum())

    def end_of_update(self, norm: float) -> None:
        """Ends an update; `norm` is its gradient norm before clipping."""
        self.losses.append(self.loss)
        self.norms.append(norm)
        self.loss = 0.0

    def skip_update(self) -> None:
        """Counts a skipped non-finite update and leaves it out of the means."""
        self.skipped += 1
        self.loss = 0.0

    def merge(self, group: SeatGroup) -> None:
        """Replaces each seat's sums by the sums over all seats. Losses and norms are already
        global."""
        reference = self.reference_kl
        own = [getattr(part, name) for part, names in self._merged() for name in names]
        everyone = group.gathered([*own, reference or 0.0, reference is not None])
        sums, largest = everyone.sum(0).tolist(), everyone.amax(0).tolist()
        fields = [(part, name) for part, names in self._merged() for name in names]
        for (part, name), total, most in zip(fields, sums, largest, strict=False):
            value = most if name in ("max_ratio", "largest") else total
            setattr(part, name, type(getattr(part, name))(value))
        if largest[-1]:
            self.reference_kl = sums[-2]

    def _merged(self) -> tuple[tuple[Any, tuple[str, ...]], ...]:
        counts = ("samples", "tokens", "sample_tokens", "computed_tokens", "clipped")
        mismatch = ("tokens", "difference", "largest", "outside", "kl")
        return (self, (*counts, "ratio", "max_ratio", "kl", "entropy")), (self.mismatch, mismatch)

    def statistics(self) -> Statistics:
        kl = self.reference_kl
        return {
            "updates": len(self.losses),
            "skipped_updates": self.skipped,
            "samples": self.samples,
            "loss": _mean(sum(self.losses), len(self.losses)),
            "grad_norm": _mean(sum(self.norms), len(self.losses)),
            "ratio_mean": _mean(self.ratio, self.tokens),
            "ratio_max": self.max_ratio if self.tokens else None,
            "clip_share": _mean(self.clipped, self.tokens),
            "kl": _mean(self.kl, self.tokens),
            "entropy": _mean(self.entropy, self.tokens),
            "chosen_tokens": self.tokens,
            "sample_tokens": self.sample_tokens,
            "computed_tokens": self.computed_tokens,
            **({} if kl is None else {"reference_kl": _mean(kl, self.tokens)}),
            **self.mismatch.statistics(),
        }
