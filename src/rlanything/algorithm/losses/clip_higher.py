"""Clip-Higher of DAPO (arXiv 2503.14476, section 3.1): the clipped surrogate with two distances.

    loss = -min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) + KL terms

eps_low is `clip_range`, eps_high `clip_range_high`. A larger eps_high lets unlikely tokens of good
samples grow further, which keeps entropy up; the paper takes 0.2 and 0.28. Only its clip is here:
its mean over tokens of all samples together and its dynamic sampling are not.
"""

from __future__ import annotations

from rlanything.algorithm.losses.base import LossInputs, LossOutputs
from rlanything.algorithm.losses.clipped import clipped_surrogate


def clip_higher(inputs: LossInputs) -> LossOutputs:
    """The clipped surrogate with a distance below and another above the old probability."""
    settings = inputs.settings
    return clipped_surrogate(
        inputs, inputs.log_ratio.exp(), settings.clip_range, settings.upper_clip_range
    )
