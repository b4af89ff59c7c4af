"""Group Sequence Policy Optimization, GSPO (arXiv 2507.18071, Eq. 5 and 7).

A whole sample has one ratio, the geometric mean of those of its T chosen tokens, and is clipped or
kept as a whole:

    s    = exp(1/T sum_t (logp_new_t - logp_old_t))
    loss = -min(s A, clip(s, 1 - eps_low, 1 + eps_high) A) + KL terms

eps_low is `clip_range`, eps_high `clip_range_high`. s is a mean of logs and moves far less than a
token's ratio: the paper takes 3e-4 and 4e-4, and the default of 0.2 would hardly ever clip. Every
token carries its sample's term, so the learner's mean over tokens is that term, and the gradient is
the paper's: s A times the mean gradient of the log-probs. Two things are ours: log ratios
are limited token by token as in the other losses, and importance weighs a sample by the mean over
its tokens.
"""

from __future__ import annotations

from rlanything.algorithm.losses.base import LossInputs, LossOutputs
from rlanything.algorithm.losses.clipped import clipped_surrogate


def gspo(inputs: LossInputs) -> LossOutputs:
    """The clipped surrogate with one ratio for all tokens of a sample."""
    settings = inputs.settings
    ratio = inputs.sample_means(inputs.log_ratio).exp()
    return clipped_surrogate(inputs, ratio, settings.clip_range, settings.upper_clip_range)
