"""The losses: pure functions from the tokens of a batch of whole samples to one term a token.

The learner takes the mean of `loss` over the tokens of a sample, then the mean over samples, and
descends its gradient. With r = p_new / p_old of a token (`ratio`) and A its advantage:

| name | to be minimised | source |
|---|---|---|
| `clipped` | -min(r A, clip(r, 1 - eps, 1 + eps) A) | PPO, arXiv 1707.06347, Eq. 7 |
| `clip_higher` | -min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) | DAPO, arXiv 2503.14476, 3.1 |
| `gspo` | the same with one ratio for all tokens of a sample | GSPO, arXiv 2507.18071, Eq. 5 |
| `reinforce` | -A logp_new | Williams 1992, doi.org/10.1007/BF00992696 |

Every shipped loss ends in `with_kl`, so that `kl_weight` and `reference_kl_weight` mean the same in
all of them. With d = logp_old - logp_new, the k3 estimate of the KL divergence
(http://joschu.net/blog/kl-approx.html) is exp(d) - 1 - d.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from rlanything.algorithm.options import FunctionConfig, Options

if TYPE_CHECKING:  # recipes load without torch
    from torch import Tensor

LOG_RATIO_LIMIT = 10.0
"""Log ratios are clamped to this distance from 0, where exp would overflow; their gradient beyond
is 0."""


@dataclass(frozen=True)
class LossInputs:
    """The trained response tokens of a batch, sample after sample.

    All trained tokens of a sample are in one batch."""

    new_logprobs: Tensor
    """[tokens], log-probs under the weights being trained; the only input with a gradient."""
    old_logprobs: Tensor
    """[tokens], log-probs that ratios compare with: the sampler's or, with
    `old_logprobs: recomputed`, the learner's before the update."""
    advantages: Tensor
    """[tokens], the token's own advantage, or that of its sample."""
    samples: Tensor
    """[tokens], the number of the sample that each token belongs to, from 0."""
    sample_count: int
    """Number of samples in the batch, including those without a trained token."""
    kl_weight: float = 0.0
    """beta, the weight of the KL divergence from the policy that sampled."""
    reference_kl_weight: float = 0.0
    """The weight of the KL divergence from the reference model."""
    importance: Tensor | float = 1.0
    """[tokens], weights of the policy term, not of the KL: min(p_learner / p_sampler, cap) with
    `importance_cap` (truncated importance sampling), else 1."""
    reference_logprobs: Tensor | None = None
    """[tokens], log-probs under the reference model; None without one."""

    @cached_property
    def log_ratio(self) -> Tensor:
        """Returns [tokens], logp_new - logp_old clamped to `LOG_RATIO_LIMIT`."""
        return _log_ratio(self.new_logprobs, self.old_logprobs)

    def sample_means(self, values: Tensor) -> Tensor:
        """Returns [tokens]: at each token the mean of `values` [tokens] over its sample."""
        sums = values.new_zeros(self.sample_count).index_add(0, self.samples, values)
        tokens = self.samples.bincount(minlength=self.sample_count).clamp(min=1)
        return (sums / tokens)[self.samples]


@dataclass(frozen=True, slots=True)
class LossOutputs:
    """The contribution of each token to the update and to its statistics, all [tokens]."""

    loss: Tensor
    """Loss to minimise."""
    ratio: Tensor
    """p_new / p_old of the token, or of its sample if the loss has one ratio per sample."""
    clipped: Tensor
    """True where the clip made the policy term flat; always False for a loss without a clip."""
    kl: Tensor
    """k3 estimate of the divergence from the policy that sampled, never negative."""
    reference_kl: Tensor | None
    """k3 estimate of the divergence from the reference model; None without one."""


Loss = Callable[[LossInputs], LossOutputs]
"""A loss with its options."""


class LossConfig(FunctionConfig):
    """The loss of a trained role."""

    kind: ClassVar[str] = "loss"
    name: str = "clipped"
    """A registered loss, or `module:function`."""


ClipRange = Annotated[float, Field(gt=0, lt=1)]


class ClipOptions(Options):
    """Options of `clipped`."""

    clip_range: ClipRange = 0.2
    """eps, the distance of both bounds of the clip from 1."""


class AsymmetricClipOptions(Options):
    """Options of `clip_higher` and `gspo`."""

    clip_range: ClipRange = 0.2
    """eps_low, the distance of the clip's lower bound from 1."""
    clip_range_high: Annotated[float, Field(gt=0)] | None = None
    """eps_high, the distance of the clip's upper bound from 1; None: `clip_range`."""

    @property
    def upper(self) -> float:
        """Returns eps_high as a number."""
        return self.clip_range if self.clip_range_high is None else self.clip_range_high


def clipped(inputs: LossInputs, options: ClipOptions) -> LossOutputs:
    """The clipped surrogate of PPO for each token: RLAnything's objective, and the default.

    The loss is flat for a token whose ratio moved more than eps in the direction of its
    advantage."""
    return _surrogate(inputs, inputs.log_ratio.exp(), options.clip_range, options.clip_range)


def clip_higher(inputs: LossInputs, options: AsymmetricClipOptions) -> LossOutputs:
    """Clip-Higher of DAPO: the clipped surrogate with a lower and a larger upper distance.

    A larger eps_high lets unlikely tokens of good samples grow further, which keeps entropy up; the
    paper uses 0.2 and 0.28. DAPO's token-level mean over all samples and its dynamic sampling are
    not implemented."""
    return _surrogate(inputs, inputs.log_ratio.exp(), options.clip_range, options.upper)


def gspo(inputs: LossInputs, options: AsymmetricClipOptions) -> LossOutputs:
    """Group Sequence Policy Optimization: one ratio for the T chosen tokens of a sample, their
    geometric mean s = exp(1/T sum_t log r_t), so that samples are clipped as a whole.

    s is a mean of logs and moves far less than a token's ratio: the paper uses 3e-4 and 4e-4; the
    default of 0.2 would hardly ever clip. Every token carries its sample's term, so the learner's
    mean over tokens is that term, and the gradient is the paper's: s A times the mean gradient of
    the log-probs. It deviates in two points: log ratios are clamped per token as in the other
    losses, and importance weighs a sample by the mean over its tokens."""
    ratio = inputs.sample_means(inputs.log_ratio).exp()
    return _surrogate(inputs, ratio, options.clip_range, options.upper)


def reinforce(inputs: LossInputs) -> LossOutputs:
    """The plain policy gradient: the advantage times the log-prob of each token.

    No ratio and no clip: it ignores how far the weights have moved from those that sampled. That is
    right if an iteration is one update (`minibatches: 1` and `epochs: 1`, the defaults); with
    several, lower the learning rate or raise `kl_weight`. Statistics show ratios per token."""
    return with_kl(inputs, -inputs.importance * inputs.advantages * inputs.new_logprobs)


def _surrogate(inputs: LossInputs, ratio: Tensor, low: float, high: float) -> LossOutputs:
    """Returns -min(r A, clip(r, 1 - low, 1 + high) A) plus the KL terms for `ratio` [tokens]."""
    free = ratio * inputs.advantages
    bounded = ratio.clamp(1 - low, 1 + high) * inputs.advantages
    return with_kl(inputs, -inputs.importance * free.minimum(bounded), ratio, bounded < free)


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
    loss = policy_loss + inputs.kl_weight * kl
    reference_kl = None
    if inputs.reference_logprobs is not None:
        reference_kl = _k3(_log_ratio(inputs.new_logprobs, inputs.reference_logprobs))
        loss = loss + inputs.reference_kl_weight * reference_kl
    return LossOutputs(
        loss=loss,
        ratio=inputs.log_ratio.exp() if ratio is None else ratio,
        clipped=loss.new_zeros(loss.shape).bool() if clipped is None else clipped,
        kl=kl,
        reference_kl=reference_kl,
    )


def _log_ratio(new: Tensor, old: Tensor) -> Tensor:
    return (new - old).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def _k3(log_ratio: Tensor) -> Tensor:
    # expm1: near 0 the plain form cancels to rounding noise of either sign.
    return (-log_ratio).expm1() + log_ratio
