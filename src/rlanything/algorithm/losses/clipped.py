"""The clipped surrogate of PPO (arXiv 1707.06347, Eq. 7) for each token: RLAnything's objective.

With r = p_new / p_old of a token, A its sample's advantage and eps = `clip_range`,

    loss = -min(r A, clip(r, 1 - eps, 1 + eps) A) + KL terms

A token that has moved by more than eps in the direction that its advantage asks for is flat: it
moves no further in this update.
"""

from __future__ import annotations

from torch import Tensor

from rlanything.algorithm.losses.base import LossInputs, LossOutputs, with_kl


def clipped(inputs: LossInputs) -> LossOutputs:
    """The default loss, clipped at one distance below and above a token's old probability."""
    eps = inputs.settings.clip_range
    return clipped_surrogate(inputs, inputs.log_ratio.exp(), eps, eps)


def clipped_surrogate(inputs: LossInputs, ratio: Tensor, low: float, high: float) -> LossOutputs:
    """Returns -min(r A, clip(r, 1 - low, 1 + high) A) plus the KL terms for `ratio` [tokens]."""
    free = ratio * inputs.advantages
    bounded = ratio.clamp(1 - low, 1 + high) * inputs.advantages
    return with_kl(inputs, -inputs.importance * free.minimum(bounded), ratio, bounded < free)
