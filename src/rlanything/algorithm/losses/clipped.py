"""The loss: a clipped surrogate plus beta times the k3 estimate of the KL divergence.

Per response token, with -d = clip(logp_new - logp_old, -10, 10) and r = exp(-d):

    min(r A, clip(r, 1 - eps, 1 + eps) A) - beta (exp(d) - 1 - d)

to be maximised; mean over the response tokens of a sample, then mean over samples. With an anchor,
the model before training, the same k3 estimate with its log-probs for logp_old is subtracted once
more, by a weight of its own (not in the paper). Where sampler and learner disagree on log-probs,
`old` may be the learner's, and the first term then carries a weight min(p_learner / p_sampler,
cap): truncated importance sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

LOG_RATIO_LIMIT = 10.0


@dataclass(frozen=True, slots=True)
class LossSettings:
    clip_range: float = 0.2
    """eps"""
    kl_weight: float = 0.01
    """beta"""
    reference_kl_weight: float = 0.0
    """As beta, for the divergence from the anchor."""


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """What each response token contributes, all [tokens]."""

    loss: Tensor
    ratio: Tensor
    clipped: Tensor
    """True where the clip made the surrogate flat."""
    kl: Tensor
    """k3, never negative."""
    reference_kl: Tensor | None
    """k3 to the anchor; None without one."""


def token_terms(
    new_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    objective: LossSettings,
    importance: Tensor | float = 1.0,
    reference_logprobs: Tensor | None = None,
) -> TokenTerms:
    """The terms of the loss for tokens [tokens]; the caller weighs and sums them.

    `importance` [tokens] multiplies the surrogate, not the KL. `reference_logprobs` [tokens]: the
    anchor's; None: there is none."""
    log_ratio = _log_ratio(new_logprobs, old_logprobs)
    ratio = log_ratio.exp()
    eps = objective.clip_range
    free, bounded = ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages
    kl = _k3(log_ratio)
    loss = -importance * free.minimum(bounded) + objective.kl_weight * kl
    reference_kl = None
    if reference_logprobs is not None:
        reference_kl = _k3(_log_ratio(new_logprobs, reference_logprobs))
        loss = loss + objective.reference_kl_weight * reference_kl
    return TokenTerms(loss, ratio, bounded < free, kl, reference_kl)


def _log_ratio(new: Tensor, old: Tensor) -> Tensor:
    """-d"""
    return (new - old).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def _k3(log_ratio: Tensor) -> Tensor:
    # expm1: near 0 the plain form cancels to rounding noise of either sign.
    return (-log_ratio).expm1() + log_ratio
