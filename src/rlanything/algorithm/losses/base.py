"""A loss: a pure function from the tokens of a batch of whole samples to its terms.

The learner takes the mean of `loss` over the tokens of a sample, then the mean over samples, and
descends its gradient. Every shipped loss ends in `with_kl`, so that `kl_weight` and
`reference_kl_weight` mean the same in all of them. With d = logp_old - logp_new, the k3 estimate of
the KL divergence (http://joschu.net/blog/kl-approx.html) is exp(d) - 1 - d.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 10.0
"""Log ratios are cut off at this distance from 0, where exp would run away; beyond it their
gradient is 0."""


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The numbers of a recipe's role that a loss may read."""

    clip_range: float = 0.2
    """eps, the distance of the clip's lower bound from 1, and of the upper one where the loss has
    one distance for both."""
    clip_range_high: float | None = None
    """The distance of the upper bound from 1; None: `clip_range`."""
    kl_weight: float = 0.01
    """beta, the weight of the KL divergence from the policy that sampled."""
    reference_kl_weight: float = 0.0
    """The weight of the KL divergence from the reference model."""

    @property
    def upper_clip_range(self) -> float:
        return self.clip_range if self.clip_range_high is None else self.clip_range_high


@dataclass(frozen=True)
class LossInputs:
    """The response tokens of a batch that were chosen, one sample's after another's.

    Samples are whole: all tokens of a sample that train are in one batch."""

    new_logprobs: Tensor
    """[tokens], log-probs under the weights that learn; the only input with a gradient."""
    old_logprobs: Tensor
    """[tokens], log-probs that ratios compare with: the sampler's or, with
    `old_logprobs: recomputed`, the learner's before the update."""
    advantages: Tensor
    """[tokens], the advantage of the token's sample."""
    samples: Tensor
    """[tokens], the number of the sample that each token belongs to, from 0."""
    sample_count: int
    """Samples of the batch, those without any chosen token included."""
    settings: LossSettings
    importance: Tensor | float = 1.0
    """[tokens], weights of the policy's term but not of the KL: min(p_learner / p_sampler, cap)
    with `importance_cap`, truncated importance sampling; 1 without."""
    reference_logprobs: Tensor | None = None
    """[tokens], log-probs under the reference model; None: there is none."""

    @cached_property
    def log_ratio(self) -> Tensor:
        """[tokens], logp_new - logp_old within `LOG_RATIO_LIMIT`."""
        return _log_ratio(self.new_logprobs, self.old_logprobs)

    def sample_means(self, values: Tensor) -> Tensor:
        """Returns [tokens]: at each token the mean of `values` [tokens] over its sample."""
        sums = values.new_zeros(self.sample_count).index_add(0, self.samples, values)
        tokens = torch.bincount(self.samples, minlength=self.sample_count).clamp(min=1)
        return (sums / tokens)[self.samples]


@dataclass(frozen=True, slots=True)
class LossOutputs:
    """The contribution of each token to the update and to its statistics, all [tokens]."""

    loss: Tensor
    """To be minimised."""
    ratio: Tensor
    """The probability now over the old one: the token's or, where the loss has one for the whole
    sample, its sample's."""
    clipped: Tensor
    """True where the clip made the policy's term flat; False everywhere for a loss without one."""
    kl: Tensor
    """k3 estimate of the divergence from the policy that sampled, never negative."""
    reference_kl: Tensor | None
    """k3 estimate of the divergence from the reference model; None: there is none."""


Loss = Callable[[LossInputs], LossOutputs]


def with_kl(
    inputs: LossInputs,
    policy_loss: Tensor,
    ratio: Tensor | None = None,
    clipped: Tensor | None = None,
) -> LossOutputs:
    """Returns `policy_loss` [tokens], which is to be minimised, plus both weighted KL terms.

    Args:
        ratio: [tokens], for the statistics; None: the tokens' own.
        clipped: [tokens]; None: nothing was clipped."""
    kl = _k3(inputs.log_ratio)
    loss = policy_loss + inputs.settings.kl_weight * kl
    reference_kl = None
    if inputs.reference_logprobs is not None:
        reference_kl = _k3(_log_ratio(inputs.new_logprobs, inputs.reference_logprobs))
        loss = loss + inputs.settings.reference_kl_weight * reference_kl
    return LossOutputs(
        loss=loss,
        ratio=inputs.log_ratio.exp() if ratio is None else ratio,
        clipped=torch.zeros_like(loss, dtype=torch.bool) if clipped is None else clipped,
        kl=kl,
        reference_kl=reference_kl,
    )


def _log_ratio(new: Tensor, old: Tensor) -> Tensor:
    return (new - old).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def _k3(log_ratio: Tensor) -> Tensor:
    # expm1: near 0 the plain form cancels to rounding noise of either sign.
    return (-log_ratio).expm1() + log_ratio
